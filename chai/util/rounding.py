"""Integers rounded up."""

from __future__ import annotations


def ceil_div(value: int, step: int) -> int:
    """Return value / step, rounded up."""
    return -(-value // step)


def round_up(value: int, step: int) -> int:
    """Return ``value`` rounded up to a multiple of ``step``."""
    return -(-value // step) * step
