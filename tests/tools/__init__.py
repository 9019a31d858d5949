"""Tests of the tools that are run from a clone."""
