"""Execute a Schedule: run batches through its steps, on a device and on the host."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import Array, Shape, bases
from ..devices.base import Device, Program
from ..env import env
from ..kernels.native.library import computing
from ..kernels.native.threads import threads
from ..offload.plan import Plan
from ..offload.schedule import Blobs, DeviceStep, HostStep, Pack, Side, Step, Unpack, with_plain_inputs
from ..tasks.work import Work
from ..util.lazy_numpy import np
from ..util.sharing import Lifetime, Mutex, entered
from .direct import Direct, Readers, direct, unpacking_at_once
from .renewing import Written
from .slot import Kept, LazyBlobs, Run, Slot, StepBlobs
from .steps import ChainMemory, PreparedStep
from .steps.conversions import Packing, Unpacking
from .steps.layers import OnCodes, PreparedLayer
from .steps.segments import DeviceSegment
from .times import BlobLog, ModelledTime, Times

if TYPE_CHECKING:
    from ..images.pictures import Feed
    from .folded import Folded
    from .lanes import Pipeline, Readiness

SETS = 2  # of a Program's memory in a stream: the host works in one, the device in the other


class Execution:
    """Runs batches through the Programs of a Plan, ``counting`` the codes that are saturated.

    Several threads may run batches at once. ``close`` does not wait for them: the last one to end releases the Programs.
    """

    def __init__(self, plan: Plan, device: Device, folded: Folded | None = None, counting: bool = False) -> None:
        self.plan = plan
        self.folded = folded
        self.device = device
        self.graph, self.shapes, self.overlay = plan.graph, plan.shapes, plan.overlay
        self._device_shapes, self._batch = plan.device_shapes, plan.batch
        self.formats, self.partition, self.schedule = plan.formats, plan.partition, plan.schedule
        self._apart = env().check or bool(env().dump)  # each Task is a Program, and reads and writes arrays of the host
        self._executed = plan.schedule
        if not self._apart:  # else Tasks are as the overlay has them
            self._executed = with_plain_inputs(plan.schedule, plan.shapes, device.reads_plain)
        if device.placed:
            self._executed = unpacking_at_once(self._executed)
        self._programs: dict[tuple[int, frozenset[str]], list[Program]] = {}
        self._kept: dict[tuple[frozenset[str], frozenset[str], bool], Kept] = {}
        self._memory = ChainMemory()
        self._compiling = Mutex()
        self._lifetime = Lifetime(self._release)
        for i, step in enumerate(self._executed.steps):
            if isinstance(step, DeviceStep):
                self._compiled(i, step, frozenset())
        self._steps = [self._prepared(step, counting) for step in self._executed.steps]
        self._emulation = ModelledTime(device.word, partial(_modelled_rate, plan)) if device.word else None
        self._dynamic = any(layer.dynamic for layer in plan.graph.layers)
        others = (read for step in self._executed.steps if not isinstance(step, Pack) for read in step.reads)
        self._packed = frozenset(plan.graph.inputs).difference(blob for side, blob in others if side == "host")
        # lanes that compute, with that of the caller of a stream: where there are processors for both, it converts ahead
        self._ahead = threads() > (2 if device.word else 1)

    def _prepared(self, step: Step, counting: bool) -> PreparedStep:
        """Return a step, ready to run on many batches; ``counting``: a conversion counts the codes that are saturated."""
        plan, shapes = self.plan, self.shapes
        if isinstance(step, Pack):
            return Packing(step, plan.graph, plan.device_shapes, counting)
        if isinstance(step, Unpack):
            return Unpacking(step, plan.graph, shapes, counting)
        if isinstance(step, DeviceStep):
            return DeviceSegment(step, plan, self._executed)
        if step.codes:
            return OnCodes(step.layer, shapes, step.layer.on_codes(shapes, plan.formats))
        return PreparedLayer(step.layer, shapes)

    def close(self) -> None:
        """Release the Programs' resources on the device as soon as no batch is running."""
        self._lifetime.close()

    def _release(self) -> None:
        with self._compiling:
            for programs in self._programs.values():
                for program in programs:
                    program.close()
        self._kept, self._memory = {}, ChainMemory()

    def needed(self, keep: frozenset[str]) -> frozenset[str]:
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
        if self._apart:
            return [
                work._replace(tasks=(task,), reads=task.inputs, writes=(task.output,), chain=None)
                for task in step.tasks
            ]
        return [work._replace(writes=(*step.outputs, *kept), chain=None)] if kept else [work]

    def run(
        self,
        feeds: Mapping[str, Feed],
        keep: Collection[str],
        started: float | None = None,
        written: Written | None = None,
    ) -> tuple[Mapping[str, Array], Times]:
        """Return the blobs of ``keep`` (ids) in float32, and the times of the pass since ``started`` (default: now).

        ``written`` is what custom layers wrote for these feeds already. Raises Resized for one that gives other sizes.
        Independent branches on host and device run in parallel; without such branches no thread is started.
        """
        begin = perf_counter() if started is None else started
        return self._lifetime.run(self._run, feeds, keep, begin, written or Written())

    def _run(
        self, feeds: Mapping[str, Feed], keep: Collection[str], started: float, written: Written
    ) -> tuple[Mapping[str, Array], Times]:
        feeds = self._read(feeds, keep)
        pictures = frozenset([blob for blob, feed in feeds.items() if not isinstance(feed, np.ndarray)])
        follows = (frozenset(keep), pictures, False) in self._kept  # an earlier pass
        kept = self._kept_with(keep, pictures, self._together and follows)
        log = BlobLog() if kept.peak is None else None
        slot = Slot(feeds, kept, started, log, written)
        slot.feed = (perf_counter() - slot.started) * 1000
        if self.branches:
            for _ in self._pipeline(kept, 1).stream([slot]):
                pass
        else:
            entered(self, self._in_order, slot)
            if log is not None and not self._dynamic:
                kept.peak = int(log)
        return self.result(slot)

    def _in_order(self, slot: Slot) -> None:
        try:
            with np.errstate(all="ignore"):
                for step, use in slot.kept.steps:
                    if use.claims is not None:
                        slot.wait_for(use.claims)
                    _run(step, use, slot)
        finally:
            slot.lease.clear()  # in C: whatever comes after it, no set is lost
            slot.give_all_back()

    def _read(self, feeds: Mapping[str, Feed], keep: Collection[str], ahead: bool = False) -> Mapping[str, Feed]:
        """Return the feeds as the steps read them: in float32, but Pictures where nothing but codes is made of them.

        ``ahead``: look their codes up now, not in their Pack.
        """
        for blob, feed in feeds.items():
            if isinstance(feed, np.ndarray):
                continue
            if not (blob in self._packed and blob not in keep and feed.by_byte):
                feeds = {**feeds, blob: feed.floats()}
            elif ahead and blob in self.formats:
                feeds = {**feeds, blob: feed.coded(self.formats[blob])}
        return feeds

    def _kept_with(self, keep: Collection[str], pictures: frozenset[str], together: bool) -> Kept:
        """Return what all passes that keep these blobs have in common, whose inputs ``pictures`` take less memory than float32.

        ``together``: steps in C that follow each other are one.
        """
        key = frozenset(keep), pictures, together
        return self._kept.get(key) or self._kept.setdefault(key, self._keeping(*key))

    def _keeping(self, blobs: frozenset[str], pictures: frozenset[str], together: bool) -> Kept:
        uses = [self._use(i, step, blobs) for i, step in enumerate(self._executed.steps)]
        for conversions in self._direct(uses):
            for i in conversions.steps:
                uses[i].direct = conversions
            uses[conversions.steps[0]].claims = uses[conversions.steps[-1]].gives = conversions
        steps = [*zip(self._steps, uses)]
        if together:
            from .steps.in_c import in_c  # which streams and boards do without

            shapes: dict[Side, Mapping[str, Shape]] = {"host": self.shapes, "device": self._device_shapes}
            steps = [*in_c(steps, blobs, pictures, shapes, self._memory)]
        return Kept(blobs, steps)

    @cached_property
    def _together(self) -> bool:
        """Return whether a pass runs its steps in order in one thread, and looks at nothing between them.

        The first pass still does so one by one: to prepare a table is worth it only if passes follow.
        """
        return not (self._apart or self.device.placed or self._dynamic or self.branches)

    def _direct(self, uses: Sequence[StepBlobs]) -> Iterator[Direct]:
        """Yield the conversions that take place in the memory of Programs."""
        if not self.device.placed or self._apart:
            return
        from ..devices.placed import PlacedProgram  # which the emulator does without

        readers = Readers(self._executed)
        for i, use in enumerate(uses):
            for program in use.programs:
                if isinstance(program, PlacedProgram) and (conversions := direct(readers, i, program)):
                    yield conversions

    def _use(self, i: int, step: Step, blobs: frozenset[str]) -> StepBlobs:
        if not isinstance(step, DeviceStep):
            return StepBlobs(step.reads, step.writes)
        views, hidden = self._executed.views, self.device.hidden
        inside = {*(top for layer in step.layers for top in layer.tops), *(task.output for task in step.tasks)}
        needed = frozenset(inside.intersection(blobs).difference(step.outputs))
        read = {*step.outputs, *needed}
        every = ((top, layer.origin[0]) for layer in step.layers for top in layer.tops)
        tops = tuple((top, layer) for top, layer in every if (top in read and top in views) or env().dump)
        # of a device with hidden memory, only what is read and what that is a part of is outside
        outside = {view.base for blob in read for view in bases(blob, views)} if hidden else inside
        written = dict.fromkeys((*step.outputs, *(needed if hidden else inside)))
        inner = inside.intersection(outside).difference(step.outputs, blobs)
        programs = tuple(self._compiled(i, step, needed))
        return StepBlobs(step.reads, _on_device(written), _on_device(inner), (), tops, programs)

    def stream(
        self,
        batches: Iterable[tuple[Mapping[str, Feed], Written]],
        keep: Collection[str],
        ready: Readiness | None = None,
    ) -> Generator[tuple[Mapping[str, Array], Times], None, None]:
        """Run many batches like ``run`` and yield the results in order; host and device work in parallel.

        Each has what custom layers wrote for it already. ``ready`` as in ``Net.stream``.
        """
        return self._lifetime.stream(self._stream(batches, keep, ready))

    def _stream(
        self, batches: Iterable[tuple[Mapping[str, Feed], Written]], keep: Collection[str], ready: Readiness | None
    ) -> Iterator[tuple[Mapping[str, Array], Times]]:
        started = perf_counter()
        kept = self._kept_with(keep, frozenset(), False)
        slots = (self._taken(feed, kept, started, written) for feed, written in batches)
        depth = 1 + sum(isinstance(step, DeviceStep) for step in self._executed.steps) * 2
        programs = [use.claims.program for use in kept.uses if use.claims is not None]
        failures = [program.failures for program in programs]
        for program in programs:
            program.reserve(SETS)
        images, finished = 0, self._pipeline(kept, depth).stream(slots, ready)
        try:
            for slot in finished:
                blobs, times = self.result(slot)
                images += self._batch
                yield blobs, replace(times, batch=images)  # wall time, too, counts from the start of the stream
        finally:
            finished.close()
            for program, before in zip(programs, failures):
                if program.failures > before:  # a later batch may have claimed new memory before the pipeline stopped
                    program.release()

    def _taken(self, feeds: Mapping[str, Feed], kept: Kept, started: float, written: Written) -> Slot:
        """Return a batch of a stream, in the thread that takes it from its source: beside the lanes, in its place."""
        begin = perf_counter()
        slot = Slot(computing(self._read, feeds, kept.blobs, self._ahead), kept, started, BlobLog(), written)
        slot.feed = (perf_counter() - begin) * 1000
        return slot

    def _pipeline(self, kept: Kept, depth: int) -> Pipeline:
        """Return host and device as two lanes, with as many batches in flight.

        Whatever the host's lane runs, in C or Python, kernels of other threads leave it a processor. The device's lane waits
        for an accelerator, or runs kernels itself.
        """
        from .lanes import Pipeline, PipelineStage  # threads, which most passes do without

        if depth not in kept.pipelines:
            needs, steps = self._needs(kept.uses), zip(self._executed.steps, kept.steps)
            stages = [
                PipelineStage(
                    _lane(step),
                    needs[i],
                    partial(_run, run, use) if _lane(step) == "fpga" else partial(computing, _run, run, use),
                    partial(Slot.claim, direct=use.claims) if use.claims else None,
                )
                for i, (step, (run, use)) in enumerate(steps)
            ]
            # threads do not inherit it with every numpy
            kept.pipelines[depth] = Pipeline(stages, depth, Slot.give_all_back, partial(np.errstate, all="ignore"))
        return kept.pipelines[depth]

    def _needs(self, uses: Sequence[StepBlobs]) -> list[frozenset[int]]:
        """Return the steps that each step waits for in a pipeline.

        Direct conversions and their segment run one after the other, when all is there that any of them needs: the batch then
        holds the set no longer than they take, and waits for nothing but its lanes.
        """
        needs = [*self._dependencies()]
        for conversions in {use.direct for use in uses if use.direct is not None}:
            steps = conversions.steps
            outside = frozenset[int]().union(*(needs[i] for i in steps)).difference(steps)
            needs[steps[0]] = outside
            for before, i in pairwise(steps):
                needs[i] = frozenset([before])
        return needs

    @cached_property
    def branches(self) -> bool:
        """Return whether a layer on the host and a segment are independent of each other."""
        steps = self._executed.steps
        before = list[frozenset[int]]()  # all direct and indirect dependencies of each step
        for needs in self._dependencies():
            before.append(needs.union(*(before[need] for need in needs)))
        host = [i for i, step in enumerate(steps) if isinstance(step, HostStep)]
        device = [i for i, step in enumerate(steps) if isinstance(step, DeviceStep)]
        return any(h not in before[d] and d not in before[h] for h in host for d in device)

    def _dependencies(self) -> Iterator[frozenset[int]]:
        """Yield the steps that each step depends on: the writers of its inputs on its side."""
        writers: dict[tuple[Side, str], int] = {}
        for i, step in enumerate(self._executed.steps):
            yield frozenset(writers[blob] for blob in step.reads if blob in writers)
            writers.update(dict.fromkeys(step.writes, i))

    def result(self, slot: Slot) -> tuple[Mapping[str, Array], Times]:
        """Return the kept blobs of a finished batch in float32, and its times."""
        begin = perf_counter()
        blobs = {blob: slot.host[blob] for blob in slot.kept.blobs if blob in slot.host}
        for blob in (slot.kept.blobs & slot.codes.keys()) - blobs.keys():
            blobs[blob] = partial(self.formats[blob].dequantize, slot.codes[blob].reshape(self.shapes[blob]))
        return LazyBlobs(blobs), slot.times(begin, self._batch, self.graph, self._emulation)


def _modelled_rate(plan: Plan) -> float:
    """Return the images per second of the overlay alone, by its cycle model; 0 where nothing models them, or runs there."""
    if plan.overlay.emulated:
        return 0.0
    chains = plan.schedule.compiled(plan.overlay, plan.device_shapes)
    ms = float(sum(chain.cycles for chain in chains)) / (plan.overlay.clock_mhz * 1000)
    return plan.batch * 1000 / ms if ms else 0.0


def _run(step: Run, use: StepBlobs, slot: Slot) -> None:
    """Run one step on the blobs of a batch, which has its set if it needs one."""
    begin = perf_counter()
    slot.done(use, step(slot, use), begin)
    if use.gives is not None:
        slot.give_back(use.gives)


def _lane(step: Step) -> str:
    return "fpga" if isinstance(step, DeviceStep) else "host"


def _on_device(blobs: Iterable[str]) -> Blobs:
    return tuple(("device", blob) for blob in blobs)
