"""Tests of VTA's instructions, simulator and lowering."""
