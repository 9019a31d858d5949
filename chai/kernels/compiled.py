"""The float32 kernels in C, which are loaded when a layer first runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .native.floats import Floats


SIZE = 1 << 24  # of anything, at most


def compiled(*sizes: tuple[int, ...]) -> Floats | None:
    """Return the kernels; None if numpy is to compute, because there is no library or one of these sizes is beyond it."""
    if not all(0 < size <= SIZE for each in sizes for size in each):
        return None
    from .native.floats import floats  # a machine's, which a list of layers does not need

    return floats()
