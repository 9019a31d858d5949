"""Tasks in numpy, faster than their definitions and equal to them in every bit: for what C does not compute.

Sums are exact in float32 up to 2^24, beyond that in float64. Weights are stored as codes: a convolution converts them to floats
while it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..blob import Array
from ..fixed import ACCUMULATOR, magnitudes
from ..overlay.weights import Packed
from ..tasks import Task
from ..util.lazy_numpy import np
from . import codes, convolution
from .pooling import max_pool

if TYPE_CHECKING:
    from ..tasks.eltwise import Eltwise
    from ..tasks.filter import FilterTask
    from ..tasks.pool import Pool

WEIGHTS = 1 << 20  # bytes of a layer's weights as floats that are in the cache
Kernel = Callable[..., None]  # inputs, output


def kernel(task: Task) -> Kernel:
    """Return a function that computes a Task into the output it is called with.

    Tasks of another arithmetic have a function ``kernel`` in their own file. Without a kernel a Task runs by its definition.
    """
    of = KERNELS.get(type(task).__module__) or getattr(sys.modules[type(task).__module__], "kernel", None)
    fast: Kernel | None = of and of(task)
    if fast is None:
        return lambda *blobs: np.copyto(blobs[-1], task.define(*blobs[:-1]))
    return fast if task.lookup is None else partial(_then_looked_up, fast, task)


def _then_looked_up(fast: Kernel, task: Task, *blobs: Array) -> None:
    fast(*blobs)
    np.copyto(blobs[-1], task.looked_up(blobs[-1]))


def _filter(task: FilterTask) -> Kernel | None:
    """Return the kernel of a Conv: a convolution of floats, image by image.

    None if maxima follow: a network's segments have a Task for each here.
    """
    if getattr(task, "pooling", None) is not None:
        return None
    dtype = "float64" if _magnitudes(task).max(initial=0) * 128 > ACCUMULATOR else "float32"

    def run(x: Array, out: Array) -> None:
        one = out.shape[2:] == (1, 1) and x.shape[2:] == task.window.kernel and task.window.pad == (0, 0)
        if task.group == 1 and one:
            _whole_map(x, task, out, dtype)
            return
        weights = np.asarray(task.weights).astype(dtype)
        for i in range(len(x)):
            sums = convolution.in_numpy(x[i : i + 1].astype(dtype), weights, task.window, task.group, task.zero)
            _requantize(sums, task, out[i : i + 1])

    return run


def _whole_map(x: Array, task: FilterTask, out: Array, dtype: str) -> None:
    """Compute a convolution whose window has one position: weights are converted in blocks that stay in the cache."""
    weights = np.asarray(task.weights).reshape(len(task.bias), -1)
    sums = np.empty((len(x), len(weights), 1, 1), dtype)
    rows = x.reshape(len(x), -1).astype(dtype)
    step = max(1, WEIGHTS // (sums.itemsize * weights.shape[1]))
    for first in range(0, len(weights), step):
        part = weights[first : first + step].astype(dtype)
        np.matmul(rows, part.T, out=sums[:, first : first + step, 0, 0])
    _requantize(sums, task, out)


def _magnitudes(task: FilterTask) -> Array:
    """Return the sum of the magnitudes of each output's weights, int64 (M,)."""
    if isinstance(task.weights, Packed):
        return task.weights.magnitudes()
    return magnitudes(np.asarray(task.weights))


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


# by the file of a kind of Task
KERNELS: dict[str, Callable[[Any], Kernel | None]] = {
    "chai.tasks.affine": _filter,
    "chai.tasks.conv": _filter,
    "chai.tasks.depthwise": _filter,
    "chai.tasks.eltwise": _eltwise,
    "chai.tasks.pool": _pool,
}
