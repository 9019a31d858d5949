"""Kernels in C: the emulator's Tasks as operations of one table, which one call runs (docs/kernels.md)."""
