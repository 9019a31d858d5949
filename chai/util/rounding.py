"""Whole numbers rounded up."""

from __future__ import annotations


def ceil_div(value: int, step: int) -> int:
    """Return how many steps cover ``value``: value / step, rounded up."""
    return -(-value // step)


def round_up(value: int, step: int) -> int:
    """Return the next multiple of ``step``."""
    return ceil_div(value, step) * step
