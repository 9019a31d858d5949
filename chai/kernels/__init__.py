"""Fast implementations of the arithmetic that layers share: in C, which is loaded when a layer first runs, or in numpy."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .native.floats import Floats

SIZE = 1 << 24  # of anything, at most


def float_kernels(*sizes: tuple[int, ...]) -> Floats | None:
    """Return the kernels; None if numpy is to compute, because there is no library or one of these sizes is beyond it."""
    return _loaded()() if _within(sizes) else None


@lru_cache(maxsize=1)
def _loaded() -> Callable[[], Floats | None]:
    from .native.floats import floats  # a machine's, which a list of layers does not need

    return floats


@lru_cache(maxsize=4096)
def _within(sizes: tuple[tuple[int, ...], ...]) -> bool:
    return all(0 < size <= SIZE for each in sizes for size in each)
