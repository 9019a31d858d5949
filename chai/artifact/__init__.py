"""Compiled networks (.chai): one file with everything a board needs, and no code."""
