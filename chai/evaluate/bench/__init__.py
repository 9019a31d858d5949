"""Measurements for ``chai bench``: interleaved rounds, start and memory of processes, the processor's peak."""
