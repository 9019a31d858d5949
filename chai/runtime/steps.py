"""The steps of a Schedule, prepared once to run on many batches: each takes a Slot, and returns its times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

from ..blob import Array, Shape, View, bases, codes_of, on_device
from ..env import env
from ..errors import DeviceError, ModelError
from ..graph import Graph, Layer
from ..kernels.codes import pack, unpack
from ..offload.schedule import DeviceStep, HostStep, Pack, Schedule, Step, Unpack
from ..overlay.layout import DeviceBlob
from ..tasks import Task
from ..util.lazy_numpy import np
from .dump import dump
from .host.layer import PreparedLayer
from .slot import Slot, StepBlobs
from .times import Rows, RunTimes, StepTime

if TYPE_CHECKING:
    from ..images.pictures import Feed
    from ..offload.plan import Plan

Prepared = Callable[[Slot, StepBlobs], RunTimes]


def prepared(plan: Plan, executed: Schedule, counting: bool) -> list[Prepared]:
    """Return the steps of ``executed``, the plan's schedule as a device executes it, ready to run.

    ``counting``: conversions count the codes that are saturated.
    """
    graph, shapes, formats = plan.graph, plan.shapes, plan.formats
    blobs = _Codes(shapes, plan.device_shapes, executed.views)
    rows = _TaskRows(plan, executed)

    def one(step: Step) -> Prepared:
        if isinstance(step, Pack):
            return _Packing(step, graph, plan.device_shapes, counting)
        if isinstance(step, Unpack):
            return _Unpacking(step, graph, shapes, counting)
        if isinstance(step, HostStep):
            layer = PreparedLayer(step.layer, shapes, 1 if step.codes else 4)
            if step.codes:
                return _OnCodes(layer, step.layer.on_codes(shapes, formats))
            return _Custom(layer) if step.layer.engine == "custom" else _OnHost(layer)
        return _Segment(step, rows.of(step), blobs)

    return [*map(one, executed.steps)]


class _Conversion:
    """A conversion of a blob between float32 and codes; its result has this shape and size in bytes."""

    def __init__(
        self, step: Pack | Unpack, graph: Graph, shape: Shape, size: int, ends: tuple[int, int] | None
    ) -> None:
        self.step, self.graph, self.format, self.shape, self.ends = step, graph, step.format, shape, ends
        self.source, self.target = step.blob, step.result
        self.rows = Rows(size * prod(shape), self._row)

    @property
    def name(self) -> str:
        """Return the prototxt's name of the blob."""
        return self.graph.caffe_name(self.step.blob)

    def count(self, codes: Array, slot: Slot) -> None:
        """Count the codes that are saturated: at an end of their format, unless that is 0."""
        if self.ends is None:
            return
        low, high = self.ends
        slot.converted += codes.size
        if codes.max(initial=low) == high:  # most have none, and a maximum is found faster
            slot.saturated += int(np.count_nonzero(codes == high))
        if low != self.format.zero and codes.min(initial=high) == low:
            slot.saturated += int(np.count_nonzero(codes == low))

    def count_in(self, blob: DeviceBlob, slot: Slot) -> None:
        """Count them in a device's memory, without the words' channels after the last."""
        if self.ends is None:
            return
        words = blob.words
        full, rest = divmod(blob.shape[1], words.shape[-1])
        self.count(words[:, :full], slot)
        if rest:
            self.count(words[:, full, ..., :rest], slot)

    def _row(self) -> Iterator[StepTime]:
        step, blob = self.step, (self.step.blob,)
        yield StepTime(f"{step.type} {self.name}", step.type, "host", 0.0, 0, self.rows.bytes, blob, blob)


class _Packing(_Conversion):
    """The codes of a blob of the host."""

    def __init__(self, step: Pack, graph: Graph, shapes: Mapping[str, Shape], counting: bool) -> None:
        super().__init__(step, graph, shapes[step.result], 1, step.format.packed if counting else None)
        self.unfold = step.unfold

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        begin = perf_counter()
        try:
            if use.direct is None:
                slot.codes[self.target] = self._codes(slot).reshape(self.shape)
            else:
                self._in_place(slot, slot.sets[use.direct].blob(self.target))
        except ModelError as error:
            writer = next(layer for layer in self.graph.layers if self.source in layer.tops)
            what = f"layer {writer.name!r} ({writer.type}): blob {self.name!r}"
            # without its frames, which would keep the device's memory
            raise ModelError(f"{what}: {error.message}", layer=writer.name) from error.with_traceback(None)
        return self.rows.run(begin, perf_counter(), slot.started)

    def _packed(self, feed: Feed) -> Array:
        """Return the codes (int8, NCHW) of a blob's numbers, or of pictures."""
        return pack(feed, self.format) if isinstance(feed, np.ndarray) else feed.codes(self.format)

    def _codes(self, slot: Slot) -> Array:
        """Return the codes (int8, NCHW), unfolded if they are to be."""
        codes = self._packed(slot.host[self.source])
        self.count(codes, slot)
        if self.unfold is not None:
            from ..kernels.unfold import unfolded  # which some devices do without

            codes = unfolded(codes, self.unfold, self.format.zero)
        return codes

    def _in_place(self, slot: Slot, target: DeviceBlob) -> None:
        """Write the codes into a device's memory."""
        from ..kernels.device_blobs import pack_into, store, unfold_into  # which some devices do without

        feed = slot.host[self.source]
        if self.unfold is None and isinstance(feed, np.ndarray):
            pack_into(feed.reshape(self.shape), self.format, target)
            self.count_in(target, slot)
            return
        codes = self._packed(feed)
        self.count(codes, slot)
        if self.unfold is None:
            store(codes.reshape(self.shape), target)
        else:
            unfold_into(codes, self.unfold, self.format.zero, target)


class _Unpacking(_Conversion):
    """The float32 values of a blob of the device."""

    def __init__(self, step: Unpack, graph: Graph, shapes: Mapping[str, Shape], counting: bool) -> None:
        clamped = any(layer.ceiling is not None for layer in graph.layers if step.blob in layer.tops)  # as it should be
        ends = step.format.range if counting and not clamped else None
        super().__init__(step, graph, shapes[step.blob], 4, ends)

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        begin = perf_counter()
        if use.direct is None:
            codes = slot.codes[self.source].reshape(self.shape)
            self.count(codes, slot)
            slot.host[self.target] = unpack(codes, self.format)
        else:
            from ..kernels.device_blobs import unpack_from  # which some devices do without

            source = slot.sets[use.direct].blob(self.source)
            self.count_in(source, slot)
            slot.host[self.target] = unpack_from(source, self.format).reshape(self.shape)
        return self.rows.run(begin, perf_counter(), slot.started)


class _OnHost:
    """A layer in float32."""

    def __init__(self, layer: PreparedLayer) -> None:
        self.run, self.bottoms, self.tops = layer.run, layer.layer.bottoms, layer.layer.tops
        self.layer = layer

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        blobs = slot.host
        tops, run = self.run([blobs[b] for b in self.bottoms], slot.started)
        blobs.update(zip(self.tops, tops))
        return run


class _Custom(_OnHost):
    """A custom layer in float32."""

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        blobs, written, layer = slot.host, slot.written, self.layer
        before = layer.layer.name in written.shown
        tops, run = layer.once([blobs[b] for b in self.bottoms], slot.started, written)
        if before:
            slot.before += sum(run.ms)
        blobs.update(zip(self.tops, tops))
        return run


class _OnCodes:
    """A layer on the device's codes. While formats are measured its function for float32 runs, never this one."""

    def __init__(self, layer: PreparedLayer, compute: Callable[..., tuple[Array, ...]]) -> None:
        self.layer, self.compute = layer, compute

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        layer, codes, name, written = self.layer, slot.codes, self.layer.layer.name, slot.written
        bottoms = [codes[b].reshape(shape) for b, shape in zip(layer.layer.bottoms, layer.bottoms)]
        before = written.codes.get(name)
        tops, run = layer.run(bottoms, slot.started, self.compute if before is None else lambda *_: before)
        if name in written.noted:
            written.codes[name] = tops
        codes.update((b, t.reshape(on_device(t.shape))) for b, t in zip(layer.layer.tops, tops))
        return run


class _Segment:
    """A segment on the device: the Programs of its StepBlobs, one for all Tasks or one for each."""

    def __init__(self, step: DeviceStep, rows: Rows, codes: _Codes) -> None:
        self.step, self.codes, self.rows = step, codes, rows
        self.whole = Rows(rows.bytes, self._whole)

    def _whole(self) -> Iterator[StepTime]:
        step, rows = self.step, self.rows
        names = " .. ".join(dict.fromkeys((step.layers[0].name, step.layers[-1].name)))
        layers = tuple(dict.fromkeys(name for layer in step.layers for name in layer.origin))
        macs, ends = sum(row.macs for row in rows.steps), (step.inputs, step.outputs)
        yield StepTime(names, "segment", "fpga", 0.0, macs, rows.bytes, *ends, layers=layers)

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        begin, codes = perf_counter(), slot.codes
        at = (begin - slot.started) * 1000
        if (direct := use.direct) is not None:
            ran = direct.program.run_in(slot.sets[direct], codes, direct.packed, direct.unpacked)
            whole, times, device = (perf_counter() - begin) * 1000, ran.tasks, [ran.device]
        elif len(use.programs) == 1 and not env().check:
            ran = use.programs[0].run(codes)
            whole, times, device = (perf_counter() - begin) * 1000, ran.tasks, [ran.device]
        else:
            times, device, whole = self._each(use, codes)
        for top, layer in use.tops:
            self.codes.expose(top, layer, codes)
        if times is None:
            known = [ms for ms in device if ms is not None]
            return RunTimes(self.whole, (whole,), at, [sum(known) if len(known) == len(device) else None])
        if len(times) != len(self.step.tasks):
            raise DeviceError(f"the device timed {len(times)} Tasks of {len(self.step.tasks)}")
        return RunTimes(self.rows, times, at, device if len(device) == len(times) else None)

    def _each(
        self, use: StepBlobs, codes: dict[str, Array]
    ) -> tuple[Sequence[float] | None, list[float | None], float]:
        """Run each Task on its own, and check it if that is asked for; return the times of a Ran for all, and the whole."""
        parts, whole = [], 0.0
        for task, program in zip(self.step.tasks, use.programs):
            begin = perf_counter()
            parts.append(program.run(codes))
            whole += (perf_counter() - begin) * 1000
            if env().check:
                self.codes.check(task, codes)
        timed = all(part.tasks is not None for part in parts)
        times = [ms for part in parts for ms in part.tasks or ()] if timed else None
        return times, [part.device for part in parts], whole


class _Codes:
    """The codes of a batch: blobs in the shapes of layers and of the device, some of them views of others."""

    def __init__(
        self, shapes: Mapping[str, Shape], device_shapes: Mapping[str, Shape], views: Mapping[str, View]
    ) -> None:
        self.shapes, self.device_shapes, self.views = shapes, device_shapes, views

    def of(self, blob: str, codes: dict[str, Array]) -> Array:
        """Return the codes of a blob."""
        return codes_of(blob, codes, self.device_shapes, self.views)

    def expose(self, top: str, layer: str, codes: dict[str, Array]) -> None:
        """Give a layer's top a view of its own if it is a part of a larger blob, and dump it if that is asked for."""
        if any(view.base in codes for view in bases(top, self.views)):  # hidden memory has none
            dump(top, layer, self.of(top, codes).reshape(self.shapes[top]))

    def check(self, task: Task, codes: dict[str, Array]) -> None:
        """Compare a Task's codes with its definition. Raises DeviceError with the first difference."""
        expected = task.define(*(self.of(b, codes) for b in task.inputs))
        written = task.written(self.of(task.output, codes), expected.shape[1])
        wrong = np.argwhere(written != expected)
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            raise DeviceError(
                f"layer {task.origin[0]!r}: the device's code at {at} is {written[at]}, by definition {expected[at]} "
                f"({len(wrong):,} of {expected.size:,} differ)",
                layer=task.origin[0],
            )


class _TaskRows:
    """Makes the rows of segments, one per Task, without times."""

    def __init__(self, plan: Plan, executed: Schedule) -> None:
        self._shapes, self._graph, self._executed = plan.device_shapes, plan.graph, executed

    @cached_property
    def _together(self) -> dict[str, list[Layer]]:
        """Return the layers that run as one Task, by the blob that it writes."""
        layers: dict[str, list[Layer]] = {}
        views, shapes = self._executed.views, self._executed.shapes
        for layer in self._graph.layers:
            wholes = [views[top].base for top in layer.tops if top in views]
            for base in dict.fromkeys(whole for whole in wholes if whole in shapes):
                layers.setdefault(base, []).append(layer)
        return layers

    @cached_property
    def _packed(self) -> dict[str, str]:
        """Return the network's blobs by the names of their codes, which differ if they are unfolded."""
        packs = (step for step in self._executed.steps if isinstance(step, Pack))
        return {step.result: step.blob for step in packs}

    def of(self, step: DeviceStep) -> Rows:
        """Return the rows of a segment."""
        written = sum([prod(self._shapes[task.output]) for task in step.tasks])
        return Rows(written, lambda: map(self._row, step.tasks))

    def _row(self, task: Task) -> StepTime:
        macs = task.macs(*(self._shapes[b] for b in task.inputs))
        written = prod(self._shapes[task.output])  # one byte per code
        together = self._together.get(task.output, [])
        name = " & ".join(layer.name for layer in together) or task.origin[0]
        layers = tuple(name for layer in together for name in layer.origin) or task.origin
        reads = tuple(self._packed.get(blob, blob) for blob in task.inputs)
        return StepTime(name, task.kind, "fpga", 0.0, macs, written, reads, (task.output,), layers=layers)
