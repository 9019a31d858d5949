"""emulator: the overlay's arithmetic on the host, bit for bit.

Tasks run in C as one table of operations (``chai/kernels/native``), where a library was compiled; all others in numpy. Both
equal the definitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import Array, Shape, Wholes, codes_of
from ..codegen.memory_map import filled
from ..kernels.forms import form
from ..kernels.native.library import description, library
from ..kernels.native.program import ChannelRange, NativeProgram
from ..kernels.native.table import Form
from ..tasks import Task
from ..tasks.work import Work
from ..util.rounding import ceil_div
from .base import Device, Program, Ran

if TYPE_CHECKING:
    from ..tasks.unfold import Unfold


# how many times the products of the unfolded input a plain one may take: where they are fast, moving codes costs more.
# Measured on one AMD EPYC (family 26), which has no AMX
MORE = {"amx": 1.3, "avx512vnni": 1.3}


class InNumpy:
    """Some Tasks with one kernel each; views share their parent's memory and are dropped with it after its last use."""

    def __init__(self, shapes: Mapping[str, Shape], wholes: Wholes, tasks: Sequence[Task], kept: set[str]) -> None:
        from ..kernels.in_numpy import kernel  # which Tasks in C do without

        self.shapes, self.wholes = shapes, wholes
        used = [{self.wholes[b].base for b in (*task.inputs, task.output)} for task in tasks]
        done = []
        for blobs in reversed(used):
            done.append(blobs - kept)
            kept |= blobs
        self.kernels = list(zip(tasks, map(kernel, tasks), reversed(done)))

    def run(self, blobs: dict[str, Array]) -> list[float]:
        """Run all Tasks, and return the milliseconds of each."""
        feeds, times, begin = {*blobs}, [], perf_counter()
        for task, compute, done in self.kernels:
            inputs = [codes_of(b, blobs, self.shapes, self.wholes.views) for b in task.inputs]
            whole = codes_of(task.output, blobs, self.shapes, self.wholes.views)
            compute(*inputs, task.written(whole, self.shapes))
            for blob in [b for b in blobs if b not in feeds and self.wholes[b].base in done]:
                del blobs[blob]
            end = perf_counter()
            times.append((end - begin) * 1000)
            begin = end
        return times


class EmulatedProgram(Program):
    """Runs of Tasks in C or in numpy, in order; between them blobs are arrays of the host.

    Without ``writes`` every blob is kept.
    """

    def __init__(self, work: Work) -> None:
        self.work, self.wholes = work, Wholes(work.views)
        used = library()
        forms = [*self._forms()] if used else [None] * len(work.tasks)
        pairs = zip(work.tasks, forms)
        runs = [[*group] for _, group in groupby(pairs, lambda pair: pair[1] is not None)]
        self.parts: list[NativeProgram | InNumpy] = []
        before = [ChannelRange(blob, 0, work.shapes[blob][1]) for blob in self._read() if len(work.shapes[blob]) == 4]
        for i, run in enumerate(runs):
            later = [task for group in runs[i + 1 :] for task, _ in group]
            native = [(task, form) for task, form in run if form is not None]
            if used is not None and native:
                wholes = {self.wholes[b].base for task, _ in native for b in task.inputs}
                loads = [part for part in before if self.wholes[part.blob].base in wholes]
                stores = [*self._stores(native, later)]
                self.parts.append(NativeProgram(used, native, work.shapes, self.wholes, loads, stores))
            else:
                kept = {self.wholes[b].base for b in work.writes or work.shapes}
                kept |= {self.wholes[b].base for task in later for b in (*task.inputs, task.output)}
                self.parts.append(InNumpy(work.shapes, self.wholes, [task for task, _ in run], kept))
            before += [self._written(task) for task, _ in run if later and self._maps(task)]

    def run(self, blobs: dict[str, Array]) -> Ran:
        times = [ms for part in self.parts for ms in part.run(blobs)]
        if not self.work.writes:
            for blob in (b for task in self.work.tasks for b in task.inputs):
                codes_of(blob, blobs, self.work.shapes, self.work.views)  # a view of what a Task wrote
        return Ran(times)

    @property
    def native(self) -> NativeProgram | None:
        part = self.parts[0]
        return part if len(self.parts) == 1 and isinstance(part, NativeProgram) and part.ends else None

    def close(self) -> None:
        for part in self.parts:
            if isinstance(part, NativeProgram):
                part.close()

    def _forms(self) -> Iterator[Form | None]:
        """Yield the form of each Task in C; a border can hold the padding of one zero point only."""
        borders: dict[str, int] = {}
        for task in self.work.tasks:
            native = form(task) if self._maps(task) else None
            if native is not None and any(native.border):
                zero = borders.setdefault(self.wholes[task.inputs[0]].base, native.zeros[0])
                native = native if zero == native.zeros[0] else None
            yield native

    def _read(self) -> Iterator[str]:
        """Yield the blobs that exist before a run: those named, or all that no Task has written before they are read."""
        yield from self.work.reads
        written: set[str] = set()
        for task in () if self.work.reads else self.work.tasks:
            yield from dict.fromkeys(b for b in task.inputs if self.wholes[b].base not in written)
            written.add(self.wholes[task.output].base)

    def _maps(self, task: Task) -> bool:
        return {len(self.work.shapes[self.wholes[blob].base]) for blob in (*task.inputs, task.output)} == {4}

    def _written(self, task: Task) -> ChannelRange:
        return ChannelRange(task.output, *task.channels(self.work.shapes))

    def _stores(self, forms: Sequence[tuple[Task, Form]], later: Sequence[Task]) -> Iterator[ChannelRange]:
        """Yield the channels that these Tasks write, and later ones or the host read."""
        written = [self._written(task) for task, _ in forms]
        read = {self.wholes[b].base for task in later for b in task.inputs}
        if not self.work.writes:
            yield from written
            return
        yield from (part for part in written if self.wholes[part.blob].base in read)
        channels = filled(self.work.writes, written, self.wholes.__getitem__, self.work.shapes)
        yield from map(ChannelRange._make, channels)


class Emulator(Device):
    """Needs numpy; a C compiler at installation makes it several times faster."""

    fixed = True
    hidden = True
    word = "emulated"

    def status(self) -> tuple[bool, str]:
        return True, f"this host, {description()}"

    def reads_plain(self, unfold: Unfold, channels: int) -> bool:
        used = library()
        if used is None:  # numpy would copy each pixel for every tap
            return False
        plain, unfolded = unfold.window.kernel, unfold.kernel.kernel
        products = plain[0] * ceil_div(plain[1] * channels, 4)  # of four codes each, for an output
        wide = unfolded[0] * ceil_div(unfold.channels(channels), 4)
        return products <= MORE.get(used.name, 1) * wide

    def compile(self, work: Work) -> Program:
        return EmulatedProgram(work)


device = Emulator("emulator", "an overlay's fixed-point arithmetic, bit for bit")
