"""Execute a Schedule: run batches through its steps, on a device and on the host."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import field, replace
from functools import cached_property, partial
from math import fsum, prod
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import bases, codes_of, on_device
from ..devices.base import Device, Program
from ..env import env
from ..errors import DeviceError, ModelError
from ..kernels.codes import pack, unpack
from ..kernels.unfold import unfolded
from ..offload.plan import Plan
from ..offload.schedule import Blobs, DeviceStep, HostStep, Pack, Side, Step, Unpack, with_plain_inputs
from ..tasks.work import Work
from ..util.lazy_dataclass import dataclass
from ..util.lazy_numpy import np
from ..util.sharing import Lifetime, Mutex, entered
from .dump import dump
from .folded import Folded
from .host import Alive, run_layer
from .lanes import Pipeline, Stage
from .perf import PerfInfo
from .step_time import Rows, Run, Steps, StepTime

if TYPE_CHECKING:
    from ..blob import Array
    from ..graph import Layer
    from ..tasks import Task


@dataclass
class Slot:
    """One batch in flight: its blobs on the host (float32) and on the device (codes), by blob id.

    A blob is dropped after its last reader, unless it is to be kept; ``left`` counts its remaining readers. ``feed`` is
    the milliseconds before the first step, ``between`` the time within steps that no row counts.
    """

    host: dict[str, Array]
    kept: Kept
    left: Counter[tuple[Side, str]]
    started: float
    codes: dict[str, Array] = field(default_factory=dict)
    times: list[StepTime | Run] = field(default_factory=list)
    feed: float = 0.0
    between: float = 0.0
    alive: Alive = field(default_factory=Alive)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.batch = next((f.shape[0] for f in self.host.values() if f.ndim), 1)
        self.fed = sum(f.nbytes for f in self.host.values())
        for blob, array in self.host.items():
            self.alive.add(("host", blob), array)

    def side(self, side: Side) -> dict[str, Array]:
        """Return the blobs on the host or on the device."""
        return self.host if side == "host" else self.codes

    def done(self, use: Use) -> None:
        """Finish a step: update the peak of memory, and drop blobs for which it was the last reader."""
        with self.lock:  # host and device steps of one batch may end at the same time
            for side, blob in use.written:
                if (array := self.side(side).get(blob)) is not None:
                    self.alive.add((side, blob), array)
            for name in use.reads:
                self.left[name] -= 1
                if self.left[name] == 0 and name[1] not in self.kept.blobs:
                    self._drop(*name)
            for blob in use.inner:
                if blob in self.codes:
                    self._drop("device", blob)

    def _drop(self, side: Side, blob: str) -> None:
        self.alive.drop((side, blob))
        self.side(side).pop(blob, None)

    def timed(self, row: StepTime | Run | None, begin: float) -> None:
        """Record the times of a step that began at ``begin``; the rest of its time until now counts as ``between``."""
        ms = 0.0 if row is None else row.ms if isinstance(row, StepTime) else fsum(row.ms)
        with self.lock:
            if row is not None:
                self.times.append(row)
            self.between += (perf_counter() - begin) * 1000 - ms


@dataclass(frozen=True)
class Use:
    """Blobs that a step reads and writes, the same in all passes that keep the same blobs.

    ``needed``   blobs inside a segment that are also needed as outputs
    ``looked``   tops to look at after a segment, each with the name of its layer
    ``written``  blobs that exist after it
    ``inner``    blobs inside a segment that are not read outside it
    """

    reads: Blobs
    needed: frozenset[str] = frozenset()
    looked: tuple[tuple[str, str], ...] = ()
    written: Blobs = ()
    inner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kept:
    """The common part of all passes that keep the same blobs: readers of each blob, and the use of each step."""

    blobs: frozenset[str]
    left: Counter[tuple[Side, str]]
    uses: tuple[Use, ...]


class Execution:
    """Runs batches through the Programs of a Plan.

    Several threads may run batches at once. ``close`` does not wait for them: the last one to end releases the Programs.
    """

    def __init__(self, plan: Plan, device: Device, folded: Folded | None = None) -> None:
        self.plan = plan
        self.folded = folded
        self.device = device
        self.graph, self.shapes, self.overlay = plan.graph, plan.shapes, plan.overlay
        self._device_shapes = plan.device_shapes
        self.formats, self.partition, self.schedule = plan.formats, plan.partition, plan.schedule
        self._executed = with_plain_inputs(plan.schedule, [*self._plain()])
        self._programs: dict[tuple[int, frozenset[str]], list[Program]] = {}
        self._kept: dict[frozenset[str], Kept] = {}
        self._compiling = Mutex()
        self._lifetime = Lifetime(self._release)
        for i, step in enumerate(self._executed.steps):
            if isinstance(step, DeviceStep):
                self._compiled(i, step, frozenset())
            elif isinstance(step, HostStep) and step.codes:
                step.layer.on_codes(self.shapes, self.formats)  # compiled now, not at the first image

    def _plain(self) -> Iterator[Pack]:
        """Yield the Packs that do not unfold on this device; none if Tasks are checked or dumped, as the overlay has them."""
        if env().check or env().dump:
            return
        for step in self.schedule.steps:
            if not isinstance(step, Pack) or step.unfold is None:
                continue
            if self.device.reads_plain(step.unfold, self.shapes[step.blob][1]):
                yield step

    def close(self) -> None:
        """Release the Programs' resources on the device as soon as no batch is running."""
        self._lifetime.close()

    def _release(self) -> None:
        with self._compiling:
            for programs in self._programs.values():
                for program in programs:
                    program.close()

    def needed(self, keep: set[str]) -> set[str]:
        """Return the blobs that a pass has to keep so that ``named`` can return those of ``keep``."""
        return keep if self.folded is None else self.folded.reads

    def named(self, kept: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the kept blobs of a pass by the network's ids, with those that were folded away."""
        return kept if self.folded is None else self.folded.compute(kept)

    def _compiled(self, i: int, step: DeviceStep, needed: frozenset[str]) -> list[Program]:
        """Return the Programs of a step; ``needed`` are inner blobs that are also needed as outputs."""
        key = i, needed if self.device.hidden else frozenset[str]()
        with self._compiling:
            if key not in self._programs:
                parts = self._parts(step, tuple(sorted(key[1])))
                self._programs[key] = [self.device.compile(part) for part in parts]
            return self._programs[key]

    def _parts(self, step: DeviceStep, kept: tuple[str, ...]) -> list[Work]:
        """Return the Work to compile for a step: all Tasks together, or one each if every blob is checked or dumped."""
        shapes, views = self._device_shapes, self._executed.views
        work = step.work(self.overlay, shapes, views)
        if env().check or env().dump:
            return [
                replace(work, tasks=(task,), reads=task.inputs, writes=(task.output,), chain=None)
                for task in step.tasks
            ]
        return [replace(work, writes=(*step.outputs, *kept), chain=None)] if kept else [work]

    def run(
        self, feeds: Mapping[str, Array], keep: Collection[str], started: float | None = None
    ) -> tuple[dict[str, Array], PerfInfo]:
        """Return the blobs of ``keep`` (ids) in float32, and the times of the pass since ``started`` (default: now).

        Independent branches on host and device run in parallel; without such branches no thread is started.
        """
        with self._lifetime.used():
            slot = self._slot(feeds, keep, perf_counter() if started is None else started)
            branches = self._branches
            slot.feed = (perf_counter() - slot.started) * 1000
            if branches:
                for _ in Pipeline(self._stages, 1).stream([slot]):
                    pass
            else:
                for i in range(len(self._executed.steps)):
                    self.step(i, slot)
            return self.result(slot)

    def _slot(self, feeds: Mapping[str, Array], keep: Collection[str], started: float) -> Slot:
        blobs = frozenset(keep)
        kept = self._kept.get(blobs) or self._kept.setdefault(blobs, self._keeping(blobs))
        return Slot(dict(feeds), kept, kept.left.copy(), started)

    def _keeping(self, blobs: frozenset[str]) -> Kept:
        """Return what all passes that keep these blobs have in common."""
        steps = self._executed.steps
        left = Counter(read for step in steps for read in step.reads)
        return Kept(blobs, left, tuple(map(partial(self._use, blobs), steps)))

    def _use(self, blobs: frozenset[str], step: Step) -> Use:
        if not isinstance(step, DeviceStep):
            return Use(step.reads, written=step.writes)
        inside = {*(top for layer in step.layers for top in layer.tops), *(task.output for task in step.tasks)}
        needed = frozenset(inside.intersection(blobs).difference(step.outputs))
        read = {*step.outputs, *needed}
        tops = ((top, layer.origin[0]) for layer in step.layers for top in layer.tops)
        looked = tuple((top, layer) for top, layer in tops if top in read or env().dump)
        written = dict.fromkeys((*step.outputs, *(needed if self.device.hidden else inside)))
        inner = tuple(inside.difference(step.outputs, blobs))
        return Use(step.reads, needed, looked, tuple(("device", blob) for blob in written), inner)

    def stream(
        self, feeds: Iterable[Mapping[str, Array]], keep: Collection[str]
    ) -> Generator[tuple[dict[str, Array], PerfInfo], None, None]:
        """Run many batches like ``run`` and yield the results in order; host and device work in parallel."""
        started = perf_counter()
        slots = (self._slot(feed, keep, started) for feed in feeds)
        depth = 1 + sum(isinstance(step, DeviceStep) for step in self._executed.steps) * 2
        images = 0
        with self._lifetime.used(), closing(Pipeline(self._stages, depth).stream(slots)) as finished:
            for slot in finished:
                blobs, perf = self.result(slot)
                images += slot.batch
                yield blobs, replace(perf, batch=images)  # wall time and images both count from the start of the stream

    @cached_property
    def _stages(self) -> list[Stage]:
        return [Stage(lane, needs, partial(self.step, i)) for i, (lane, needs) in enumerate(self._dependencies())]

    @cached_property
    def _branches(self) -> bool:
        """Return whether a layer on the host and a segment are independent of each other."""
        steps = self._executed.steps
        before = list[frozenset[int]]()  # all direct and indirect dependencies of each step
        for stage in self._stages:
            before.append(stage.needs.union(*(before[need] for need in stage.needs)))
        host = [i for i, step in enumerate(steps) if isinstance(step, HostStep)]
        device = [i for i, step in enumerate(steps) if isinstance(step, DeviceStep)]
        return any(h not in before[d] and d not in before[h] for h in host for d in device)

    def _dependencies(self) -> Iterator[tuple[str, frozenset[int]]]:
        """Yield the lane of every step, and the steps it depends on: the writers of its inputs on its side."""
        writers: dict[tuple[Side, str], int] = {}
        for i, step in enumerate(self._executed.steps):
            lane = "fpga" if isinstance(step, DeviceStep) else "host"
            yield lane, frozenset(writers[blob] for blob in step.reads if blob in writers)
            writers.update(dict.fromkeys(step.writes, i))

    def step(self, i: int, slot: Slot) -> None:
        """Run one step on the blobs of a batch."""
        begin = perf_counter()
        step = self._executed.steps[i]
        with entered(step), np.errstate(all="ignore"):
            if isinstance(step, DeviceStep):
                row = self._device(i, step, slot)
            elif isinstance(step, HostStep):
                row = self._host(step, slot)
            else:
                row = self._convert(step, slot)
        slot.done(slot.kept.uses[i])
        slot.timed(row, begin)

    def result(self, slot: Slot) -> tuple[dict[str, Array], PerfInfo]:
        """Return the kept blobs of a finished batch in float32, and its times."""
        begin = perf_counter()
        blobs = {}
        for blob in slot.kept.blobs:
            if blob in slot.host:
                blobs[blob] = slot.host[blob]
            elif blob in slot.codes:
                blobs[blob] = self.formats[blob].dequantize(self._as_layer(blob, slot.codes[blob]))
        total = slot.fed + sum(t.rows.bytes if isinstance(t, Run) else t.bytes for t in slot.times)
        slot.timed(None, begin)
        wall = (perf_counter() - slot.started) * 1000
        return blobs, PerfInfo(Steps(slot.times), wall, slot.batch, slot.alive.peak, total, slot.feed, slot.between)

    def _convert(self, step: Pack | Unpack, slot: Slot) -> StepTime:
        begin = perf_counter()
        ((_, source),), ((_, target),) = step.reads, step.writes
        values = slot.side(step.source)[source]
        if isinstance(step, Pack):
            result = self._pack(step, values)
            result = result.reshape(on_device(result.shape))
        else:
            result = unpack(self._as_layer(source, values), step.format)
        slot.side(step.target)[target] = result
        ms, at = (perf_counter() - begin) * 1000, (begin - slot.started) * 1000
        name = f"{step.type} {self.graph.caffe_name(step.blob)}"
        return StepTime(name, step.type, "host", ms, 0, result.nbytes, (step.blob,), (step.blob,), at)

    def _pack(self, step: Pack, values: Array) -> Array:
        try:
            codes = pack(values, step.format)
            return codes if step.unfold is None else unfolded(codes, step.unfold, step.format.zero)
        except ModelError as error:
            writer = next(layer for layer in self.graph.layers if step.blob in layer.tops)
            what = f"layer {writer.name!r} ({writer.type}): blob {self.graph.caffe_name(step.blob)!r}"
            raise ModelError(f"{what}: {error.message}", layer=writer.name) from error

    def _host(self, step: HostStep, slot: Slot) -> StepTime:
        layer, side = step.layer, slot.side(step.side)
        compute = layer.on_codes(self.shapes, self.formats) if step.codes else None
        bottoms = [self._as_layer(b, side[b]) if step.codes else side[b] for b in layer.bottoms]
        tops, timed = run_layer(layer, bottoms, self.shapes, slot.started, compute)
        side.update((b, t.reshape(on_device(t.shape)) if step.codes else t) for b, t in zip(layer.tops, tops))
        return timed

    def _device(self, i: int, step: DeviceStep, slot: Slot) -> StepTime | Run:
        ran, use = [], slot.kept.uses[i]
        codes, at = slot.codes, (perf_counter() - slot.started) * 1000
        whole = 0.0  # device time only, without checks
        for task, program in enumerate(self._compiled(i, step, use.needed)):
            begin = perf_counter()
            ran.append(program.run(codes))
            whole += (perf_counter() - begin) * 1000
            if env().check:
                self._check(step.tasks[task], codes)
        self._look(use, codes)
        own = [part.device for part in ran]
        rows = self._rows[i]
        if all(part.tasks is not None for part in ran):
            times = [ms for part in ran for ms in part.tasks or ()]
            counted = own if len(own) == len(times) else [None] * len(times)
            if len(times) != len(rows.steps):
                raise DeviceError(f"device {self.device.name} timed {len(times)} Tasks of {len(rows.steps)}")
            return Run(rows, times, at, counted)
        names = " .. ".join(dict.fromkeys((step.layers[0].name, step.layers[-1].name)))
        macs = sum(row.macs for row in rows.steps)
        device = None if None in own else fsum(ms for ms in own if ms is not None)
        layers = tuple(dict.fromkeys(name for layer in step.layers for name in layer.origin))
        written = rows.bytes
        return StepTime(names, "segment", "fpga", whole, macs, written, step.inputs, step.outputs, at, device, layers)

    def _look(self, use: Use, codes: dict[str, Array]) -> None:
        """Dump the layers' tops; a part of a larger blob that is read outside gets a view of its own."""
        for top, layer in use.looked:
            if any(view.base in codes for view in bases(top, self._executed.views)):  # hidden memory has none
                dump(top, layer, self._as_layer(top, self._codes(top, codes)))

    @cached_property
    def _rows(self) -> list[Rows]:
        """Rows of each step, one per Task, without times."""
        rows = [
            tuple(map(self._task, step.tasks if isinstance(step, DeviceStep) else ())) for step in self._executed.steps
        ]
        return [Rows(steps, sum(row.bytes for row in steps)) for steps in rows]

    def _codes(self, blob: str, codes: dict[str, Array]) -> Array:
        return codes_of(blob, codes, self._device_shapes, self._executed.views)

    def _as_layer(self, blob: str, codes: Array) -> Array:
        """Return codes in the shape that layers know."""
        shape = self.shapes[blob]
        return codes if codes.ndim == len(shape) else codes.reshape(shape)

    def _task(self, task: Task) -> StepTime:
        macs = task.macs(*(self._device_shapes[b] for b in task.inputs))
        written = prod(self._device_shapes[task.output])  # one byte per code
        together = self._joint.get(task.output, [])
        name = " & ".join(layer.name for layer in together) or task.origin[0]
        layers = tuple(name for layer in together for name in layer.origin) or task.origin
        reads = tuple(self._packed.get(blob, blob) for blob in task.inputs)
        return StepTime(name, task.kind, "fpga", 0.0, macs, written, reads, (task.output,), layers=layers)

    @cached_property
    def _joint(self) -> dict[str, list[Layer]]:
        """The layers that run as one Task, by the blob that it writes."""
        found: dict[str, list[Layer]] = {}
        for layer in self.graph.layers:
            views = [self._executed.views[top] for top in layer.tops if top in self._executed.views]
            for base in dict.fromkeys(view.base for view in views if view.base in self._executed.shapes):
                found.setdefault(base, []).append(layer)
        return found

    @cached_property
    def _packed(self) -> dict[str, str]:
        """Network blobs by the names of their codes, which differ if they are unfolded."""
        packs = (step for step in self._executed.steps if isinstance(step, Pack))
        return {coded: step.blob for step in packs for _, coded in step.writes}

    def _check(self, task: Task, codes: dict[str, Array]) -> None:
        """Compare a Task's codes with its definition. Raises DeviceError with the first difference."""
        wanted = task.define(*(self._codes(b, codes) for b in task.inputs))
        found = task.written(self._codes(task.output, codes), wanted.shape[1])
        wrong = np.argwhere(found != wanted)
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise DeviceError(
                f"layer {task.origin[0]!r}: the device's code at {at} is {found[at]}, by definition {wanted[at]} "
                f"({len(wrong):,} of {wanted.size:,} differ)",
                layer=task.origin[0],
            )
