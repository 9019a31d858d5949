"""Conv and Affine, in numpy as matrix products of float32, or of float64 where float32 could round a sum.

There weights are stored as codes: a convolution converts them to floats while it runs, and its input and sums band by band.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from ...blob import Array
from ...fixed import ACCUMULATOR, magnitudes
from ...overlay.weights import Packed, matrices
from ...tasks.window import Filtering
from ...util.lazy_numpy import np
from .. import codes
from ..convolution import columns, conv2d
from ..native.table import Form, Kind, fits
from . import Kernel

if TYPE_CHECKING:
    from ...tasks.filter import FilterTask
    from ..scratch import Scratch

MAX_TAPS = 1024  # pixels of a kernel, at most, in C
COLUMNS = 1 << 20  # bytes of float32 columns: columns, sums and weights of a layer fit into the cache


def kernel(task: FilterTask) -> Kernel | None:
    """Return the kernel of a Conv: products over whole maps if depthwise, else im2col and matrix products.

    None for a depthwise one of whose sums float32 could round one, which takes more than a thousand taps.
    """
    m, wide = task.weights.shape[0], bool(_magnitudes(task).max(initial=0) * 128 > ACCUMULATOR)
    if task.is_depthwise and task.window.kernel != (1, 1):
        return None if wide else lambda x, out, _: _requantize(_taps(x, task), task, out)

    def run(x: Array, out: Array, scratch: Scratch) -> None:
        take = partial(scratch.take, wide=wide)
        one = out.shape[2:] == (1, 1) and x.shape[2:] == task.window.kernel and task.window.pad == (0, 0)
        if task.group == 1 and one:
            _whole_map(x, task, out, take)
            return
        weights = matrices(task.weights, task.group, take)
        for image, result in zip(x, out):
            for rows, band in columns(image, task.window, task.group, COLUMNS, take, task.zero):
                sums = take("sums", task.group, m // task.group, band.shape[2])
                np.matmul(weights, band, out=sums)
                _requantize(sums.reshape(1, m, rows.stop - rows.start, -1), task, result[np.newaxis, :, rows])

    return run


def _whole_map(x: Array, task: FilterTask, out: Array, take: Callable[..., Array]) -> None:
    """Compute a convolution whose window has one position: weights are converted in blocks that stay in the cache."""
    weights = np.asarray(task.weights).reshape(len(task.bias), -1)
    sums = take("sums", len(x), len(weights), 1, 1)
    rows = x.reshape(len(x), -1).astype(sums.dtype)
    step = max(1, COLUMNS // (sums.itemsize * weights.shape[1]))
    for first in range(0, len(weights), step):
        part = weights[first : first + step]
        floats = take("weights", *part.shape)
        np.copyto(floats, part)
        np.matmul(rows, floats.T, out=sums[:, first : first + step, 0, 0])
    _requantize(sums, task, out)


def _magnitudes(task: FilterTask) -> Array:
    """Return the sum of the magnitudes of each output's weights, int64 (M,)."""
    if isinstance(task.weights, Packed):
        return task.weights.magnitudes()
    return magnitudes(np.asarray(task.weights))


def form(task: FilterTask) -> Form | None:
    """Return a Conv as an operation; None if a sum could leave 32 bits."""
    if getattr(task, "pooling", None) is not None:
        return None
    _, *one = task.weights.shape
    r, bias = task.requantization, int(np.abs(task.bias).max(initial=0))
    if not fits(r) or prod(one) * 128 * 255 + bias >= 1 << 31:
        return None
    kind = Kind.DEPTHWISE if task.is_depthwise else Kind.CONVOLUTION
    if prod(task.window.kernel) > MAX_TAPS:
        return None
    return Form(kind, r, task.window, task.group, task.weights, task.bias, zeros=(task.zero,))


def _taps(x: Array, task: FilterTask) -> Array:
    """Return the sums of a depthwise convolution, without a matrix product."""
    weights = np.asarray(task.weights).astype(np.float32)
    return conv2d(x.astype(np.float32), weights, None, Filtering(task.window, task.group), task.zero)


def _requantize(sums: Array, task: FilterTask, out: Array) -> None:
    codes.requantize_sums(sums, task.bias, task.requantization, out)
