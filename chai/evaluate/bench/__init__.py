"""Measurements for ``chai bench``: interleaved rounds, other engines, start and memory of processes."""
