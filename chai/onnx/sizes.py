"""Sizes that depend on the batch: what they are for the batch that the file is read for, and for one twice as large."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any


class BatchSize(int):
    """A size that depends on the batch: an integer whose arithmetic is done on ``twofold``, too: its value for two batches."""

    twofold: int


def size(here: int, twofold: int) -> int:
    """Return a size from its values for both batches: a plain integer if they are the same."""
    if here == twofold:
        return int(here)
    both = BatchSize(here)
    both.twofold = int(twofold)
    return both


def twofold(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return sizes for a batch twice as large."""
    return tuple(each.twofold if isinstance(each, BatchSize) else each for each in sizes)


def alike(*sizes: Sequence[int]) -> bool:
    """Return whether shapes, or sizes, are the same for both batches."""
    return len({(tuple(each), twofold(each)) for each in sizes}) == 1


def counts_images(value: Any) -> bool:
    """Return whether a number, or one of several, depends on the batch."""
    return isinstance(value, BatchSize) or (isinstance(value, (tuple, list)) and any(map(counts_images, value)))


def plain(value: Any) -> Any:
    """Return numbers for the batch that the file is read for."""
    return tuple(map(plain, value)) if isinstance(value, tuple) else int(value) if counts_images(value) else value


def _arithmetic(compute: Callable[[int, int], int], swapped: bool = False) -> Any:
    def both(self: BatchSize, other: int) -> int:
        pairs = zip(map(int, (self, other)), twofold((self, other)))
        (a, c), (b, d) = reversed([*pairs]) if swapped else pairs
        return size(compute(a, b), compute(c, d))

    return both


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _prefix, _swapped in (("", False), ("r", True)):
        setattr(BatchSize, f"__{_prefix}{_name}__", _arithmetic(getattr(operator, _name), _swapped))
BatchSize.__neg__ = lambda self: 0 - self  # type: ignore[method-assign]
