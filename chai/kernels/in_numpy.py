"""Tasks in numpy, faster than their definitions and equal to them in every bit: for what C does not compute.

Sums are exact in float32 up to 2^24, beyond that in float64. Weights are stored as codes: a convolution converts them to floats
while it runs, and its input and sums band by band.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..blob import Array
from ..fixed import ACCUMULATOR, magnitudes
from ..overlay.weights import Packed, matrices
from ..tasks import Task
from ..tasks.window import Filtering
from ..util.lazy_numpy import np
from . import codes
from .convolution import columns, conv2d
from .pooling import max_pool

if TYPE_CHECKING:
    from ..tasks.conv import Conv
    from ..tasks.eltwise import Eltwise
    from ..tasks.filter import FilterTask
    from ..tasks.pool import Pool

COLUMN_BYTES = 1 << 20  # of float32 columns: columns, sums and weights of a layer fit into the cache
Kernel = Callable[..., None]  # inputs, output


def kernel(task: Task) -> Kernel:
    """Return a function that computes a Task into the output it is called with.

    Tasks of another arithmetic have a function ``kernel`` in their own file. Without a kernel a Task runs by its definition.
    """
    if getattr(task, "pooling", None) is not None:
        conv: Any = task
        return partial(_then_pooled, kernel(replace(conv, pooling=None)), conv)
    of = KERNELS.get(type(task).__name__) or getattr(sys.modules[type(task).__module__], "kernel", None)
    fast: Kernel | None = of and of(task)
    if fast is None:
        return lambda *blobs: np.copyto(blobs[-1], task.define(*blobs[:-1]))
    return fast if task.lookup is None else partial(_then_looked_up, fast, task)


def _then_pooled(unpooled: Kernel, task: Conv, x: Array, out: Array) -> None:
    """Compute a convolution, then the maxima of its codes; a network's segments have a Task for each here."""
    assert task.pooling is not None
    sums = np.empty((*out.shape[:2], *task.window.sizes(x.shape[2:])), np.int8)
    unpooled(x, sums)
    np.copyto(out, task.pooling.define(sums))


def _then_looked_up(fast: Kernel, task: Task, *blobs: Array) -> None:
    """Compute a Task, then look its codes up."""
    fast(*blobs)
    np.copyto(blobs[-1], task.looked_up(blobs[-1]))


def _filter(task: FilterTask) -> Kernel | None:
    """Return the kernel of a Conv: products over whole maps if depthwise, else im2col and matrix products.

    None for a depthwise one of whose sums float32 could round one, which takes more than a thousand taps.
    """
    m, wide = task.weights.shape[0], bool(_magnitudes(task).max(initial=0) * 128 > ACCUMULATOR)
    if task.is_depthwise and task.window.kernel != (1, 1):
        return None if wide else lambda x, out: _requantize(_taps(x, task), task, out)

    def run(x: Array, out: Array) -> None:
        dtype = "float64" if wide else "float32"
        one = out.shape[2:] == (1, 1) and x.shape[2:] == task.window.kernel and task.window.pad == (0, 0)
        if task.group == 1 and one:
            _whole_map(x, task, out, dtype)
            return
        weights = matrices(task.weights, task.group, dtype)
        for image, result in zip(x, out):
            for rows, band in columns(image, task.window, task.group, COLUMN_BYTES, task.zero, dtype):
                sums = np.matmul(weights, band).reshape(1, m, rows.stop - rows.start, -1)
                _requantize(sums, task, result[np.newaxis, :, rows])

    return run


def _whole_map(x: Array, task: FilterTask, out: Array, dtype: str) -> None:
    """Compute a convolution whose window has one position: weights are converted in blocks that stay in the cache."""
    weights = np.asarray(task.weights).reshape(len(task.bias), -1)
    sums = np.empty((len(x), len(weights), 1, 1), dtype)
    rows = x.reshape(len(x), -1).astype(dtype)
    step = max(1, COLUMN_BYTES // (sums.itemsize * weights.shape[1]))
    for first in range(0, len(weights), step):
        part = weights[first : first + step].astype(dtype)
        np.matmul(rows, part.T, out=sums[:, first : first + step, 0, 0])
    _requantize(sums, task, out)


def _magnitudes(task: FilterTask) -> Array:
    """Return the sum of the magnitudes of each output's weights, int64 (M,)."""
    if isinstance(task.weights, Packed):
        return task.weights.magnitudes()
    return magnitudes(np.asarray(task.weights))


def _taps(x: Array, task: FilterTask) -> Array:
    """Return the sums of a depthwise convolution, without a matrix product."""
    weights = np.asarray(task.weights).astype(np.float32)
    return conv2d(x.astype(np.float32), weights, None, Filtering(task.window, task.group), task.zero)


def _requantize(sums: Array, task: FilterTask, out: Array) -> None:
    codes.requantize_sums(sums, task.bias, task.requantization, out)


def _eltwise(task: Eltwise) -> Kernel | None:
    """Return the kernel of the sum of two maps without a leaky ReLU, in one pass over memory."""
    if len(task.factors) != 2 or task.negative is not None or task.operation != "SUM" or task.vector:
        return None
    factors = (task.factors[0], task.factors[1])
    addend = -sum(zero * m for zero, m in zip(task.zeros, factors))
    return lambda a, b, out: codes.add(a, b, factors, addend, task.requantization, out)


def _pool(task: Pool) -> Kernel | None:
    """Return the kernel of a maximum, axis by axis."""
    if task.requantization is not None:
        return None
    return lambda x, out: np.copyto(out, max_pool(x, task.window, task.out))


# by the name of a class
KERNELS: dict[str, Callable[[Any], Kernel | None]] = {
    "Affine": _filter,
    "Conv": _filter,
    "Depthwise": _filter,
    "Eltwise": _eltwise,
    "Pool": _pool,
}
