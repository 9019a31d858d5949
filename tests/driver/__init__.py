"""Registers by name and chains in memory, on buses and buffers of Python."""
