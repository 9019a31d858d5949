"""emulator: the overlay's arithmetic on the host, bit for bit.

Each Task runs as a kernel that equals its definition: sums are exact in float32 because no accumulator reaches 2^24.
Weights stay codes, and stay where they are: a convolution widens its own while it runs, and its input and its sums band
by band.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from ..codegen.chain import codes_of
from ..kernels import codes, pooling
from ..kernels.convolution import columns, conv2d
from ..kernels.scratch import Scratch
from ..overlay.weights import is_depthwise, matrices
from ..tasks import Task
from ..tasks.conv import Conv
from ..tasks.eltwise import Eltwise
from ..tasks.pool import Pool
from ..util.lazy_numpy import np
from .base import Device, Program, Ran, Work

if TYPE_CHECKING:
    from ..blob import Array

Kernel = Callable[..., None]  # inputs, output, scratch
COLUMNS = 1 << 20  # bytes of float32 columns: they, their sums and the weights of a layer are in the cache together


class EmulatedProgram(Program):
    """One kernel per Task; blobs that are parts of another are views of it, and are dropped with it after its last use.

    Without ``writes`` none is dropped.
    """

    def __init__(self, work: Work) -> None:
        self.shapes, self.places = work.shapes, work.places
        used = [{self._whole(b) for b in (*task.inputs, task.output)} for task in work.tasks]
        asked, done = {self._whole(b) for b in work.writes or work.shapes}, []
        for wholes in reversed(used):
            done.append(wholes - asked)
            asked |= wholes
        self.kernels = list(zip(work.tasks, map(_kernel, work.tasks), reversed(done)))

    def run(self, blobs: dict[str, Array]) -> Ran:
        given, scratch = {*blobs}, Scratch()
        times, begin = [], perf_counter()
        for task, kernel, done in self.kernels:
            inputs = [codes_of(b, blobs, self.shapes, self.places) for b in task.inputs]
            whole = codes_of(task.output, blobs, self.shapes, self.places)
            kernel(*inputs, task.written(whole, self.shapes[task.inputs[0]][1]), scratch)
            for blob in [b for b in blobs if b not in given and self._whole(b) in done]:
                del blobs[blob]
            end = perf_counter()
            times.append((end - begin) * 1000)
            begin = end
        return Ran(times)

    def _whole(self, blob: str) -> str:
        while blob in self.places:
            blob = self.places[blob][0]
        return blob


def _kernel(task: Task) -> Kernel:
    if isinstance(task, Conv):
        return _conv(task)
    if isinstance(task, Pool) and task.requantization is None:
        return lambda x, out, _: np.copyto(out, pooling.max_pool(x, task.window, task.out))
    if isinstance(task, Eltwise) and len(task.factors) == 2 and task.negative is None:
        factors = (task.factors[0], task.factors[1])
        return lambda a, b, out, _: codes.add(a, b, factors, task.requantization, out)
    return lambda *given: np.copyto(given[-2], task.define(*given[:-2]))


def _conv(task: Conv) -> Kernel:
    m = task.weights.shape[0]
    if is_depthwise(task.weights.shape, task.group) and task.window.kernel != (1, 1):
        return lambda x, out, _: _requantize(_taps(x, task), task, out)

    def run(x: Array, out: Array, scratch: Scratch) -> None:
        wide = matrices(task.weights, task.group, scratch.take)
        for image, result in zip(x, out):
            for rows, band in columns(image, task.window, task.group, COLUMNS, scratch):
                sums = scratch.take("sums", task.group, m // task.group, band.shape[2])
                np.matmul(wide, band, out=sums)
                _requantize(sums.reshape(1, m, rows.stop - rows.start, -1), task, result[np.newaxis, :, rows])

    return run


def _taps(x: Array, task: Conv) -> Array:
    """Sums of a depthwise convolution, which is no matrix product."""
    weights = np.asarray(task.weights).astype(np.float32)
    return conv2d(x.astype(np.float32), weights, None, task.window, task.group)


def _requantize(sums: Array, task: Conv, out: Array) -> None:
    codes.requantize_sums(sums, task.bias, task.requantization, out)


class Emulator(Device):
    """Needs numpy; numba makes it faster."""

    fixed = True
    hidden = True

    def status(self) -> tuple[bool, str]:
        from importlib.util import find_spec

        return True, "this host, " + ("numba" if find_spec("numba") else "numpy (numba would make it faster)")

    def compile(self, work: Work) -> Program:
        return EmulatedProgram(work)


device = Emulator("emulator", "an overlay's fixed-point arithmetic, bit for bit")
