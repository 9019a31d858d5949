"""emulator: the overlay's arithmetic on the host, bit for bit.

Each Task runs as a kernel that equals its definition (``chai/kernels/fast``).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import outermost
from ..codegen.chain import codes_of
from ..kernels.fast import kernel
from ..kernels.scratch import Scratch
from .base import Device, Program, Ran, Work

if TYPE_CHECKING:
    from ..blob import Array


class EmulatedProgram(Program):
    """One kernel per Task; views share their parent's memory and are dropped with it after its last use.

    Without ``writes`` none is dropped.
    """

    def __init__(self, work: Work) -> None:
        self.shapes, self.views = work.shapes, work.views
        used = [{self._whole(b) for b in (*task.inputs, task.output)} for task in work.tasks]
        asked, done = {self._whole(b) for b in work.writes or work.shapes}, []
        for wholes in reversed(used):
            done.append(wholes - asked)
            asked |= wholes
        self.kernels = list(zip(work.tasks, map(kernel, work.tasks), reversed(done)))

    def run(self, blobs: dict[str, Array]) -> Ran:
        given, scratch = {*blobs}, Scratch()
        times, begin = [], perf_counter()
        for task, compute, done in self.kernels:
            inputs = [codes_of(b, blobs, self.shapes, self.views) for b in task.inputs]
            whole = codes_of(task.output, blobs, self.shapes, self.views)
            compute(*inputs, task.written(whole, self.shapes[task.inputs[0]][1]), scratch)
            for blob in [b for b in blobs if b not in given and self._whole(b) in done]:
                del blobs[blob]
            end = perf_counter()
            times.append((end - begin) * 1000)
            begin = end
        return Ran(times)

    def _whole(self, blob: str) -> str:
        return outermost(blob, self.views).base


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
