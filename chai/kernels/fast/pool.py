"""Pool; in numpy the maximum, axis by axis."""

from __future__ import annotations

from math import prod

from ...tasks.pool import Pool
from ...util.lazy_numpy import np
from ..native.table import Form, Kind, fits
from . import Kernel

WINDOW = 1 << 22  # pixels of an average, at most, in C: their sum has 32 bits


def kernel(task: Pool) -> Kernel | None:
    """Return the kernel of a MAX; averages run by their definition."""
    if task.requantization is not None:
        return None
    from ..pooling import max_pool  # which operations in C do without

    return lambda x, out, _: np.copyto(out, max_pool(x, task.window, task.out))


def form(task: Pool) -> Form | None:
    """Return a Pool as an operation; None if the sum of a window could leave 32 bits."""
    r = task.requantization
    if not fits(r) or (r is not None and prod(task.window.kernel) > WINDOW):
        return None
    return Form(Kind.MAXIMUM if r is None else Kind.AVERAGE, r, task.window, zeros=(task.zero,))
