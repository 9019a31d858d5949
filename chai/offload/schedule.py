"""Schedule: the steps of one forward pass, and the conversions between host and device.

Every step has the blobs it reads and writes, and their side. Before a step that reads a blob which is only on the other
side, ``insert_pack_unpack`` inserts a Pack or Unpack, once per blob and side.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..blob import View
from ..errors import ModelError
from ..fixed import Format
from ..tasks.target import Target, Unsupported
from ..tasks.work import Work
from ..util import html
from ..util.lazy_dataclass import dataclass
from ..util.table import Table
from ..util.text import visible
from .merge_parallel import merge_parallel
from .unfold_inputs import unfold_inputs, unfolded_name

if TYPE_CHECKING:
    from ..blob import Shape
    from ..graph import Graph, Layer
    from ..overlay import Overlay
    from ..tasks import Task
    from ..tasks.unfold import Unfold
    from .segments import Partition

Side = Literal["host", "device"]  # of a blob: float32 on the host, codes on the device
Blobs = tuple[tuple[Side, str], ...]


@dataclass(frozen=True)
class Conversion:
    """Conversion of a blob from ``source`` to ``target`` on the host; ``format`` is that of its codes."""

    blob: str
    format: Format
    source: ClassVar[Side]
    target: ClassVar[Side]
    layers: ClassVar[tuple[Layer, ...]] = ()

    @property
    def type(self) -> str:
        """Pack or Unpack, its name in reports."""
        return type(self).__name__

    @property
    def reads(self) -> Blobs:
        return ((self.source, self.blob),)

    @property
    def writes(self) -> Blobs:
        return ((self.target, self.blob),)

    def __str__(self) -> str:
        return visible(f"{self.type} {self.blob}")


@dataclass(frozen=True)
class Pack(Conversion):
    """Conversion from float32 on the host to codes on the device, unfolded by ``unfold`` if that is not None."""

    source, target = "host", "device"
    unfold: Unfold | None = None

    @property
    def writes(self) -> Blobs:
        return ((self.target, self.blob if self.unfold is None else unfolded_name(self.blob)),)


class Unpack(Conversion):
    """Conversion from codes on the device to float32 on the host."""

    source, target = "device", "host"


@dataclass(frozen=True)
class HostStep:
    """One layer in float32; with ``codes`` a custom layer that works directly on the device's codes."""

    layer: Layer
    reason: str
    codes: bool = False

    @property
    def layers(self) -> tuple[Layer, ...]:
        return (self.layer,)

    @property
    def side(self) -> Side:
        """Return the side of its blobs."""
        return "device" if self.codes else "host"

    @property
    def reads(self) -> Blobs:
        return tuple((self.side, blob) for blob in dict.fromkeys(self.layer.bottoms))

    @property
    def writes(self) -> Blobs:
        return tuple((self.side, blob) for blob in self.layer.tops)


@dataclass(frozen=True)
class DeviceStep:
    """One segment on the device: its Tasks in order; ``inputs`` and ``outputs`` are its blobs that other steps write and read.

    ``chain`` has the Tasks as a Chain, or what the overlay's architecture has instead, if the network was compiled before.
    """

    tasks: tuple[Task, ...]
    layers: tuple[Layer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    chain: Any = None

    def work(self, overlay: Overlay, shapes: Mapping[str, Shape], views: Mapping[str, View]) -> Work:
        """Return the Tasks with what compiling them for blobs of these shapes needs."""
        return Work(overlay, self.tasks, shapes, views, self.inputs, self.outputs, self.chain)

    @property
    def reads(self) -> Blobs:
        return tuple(("device", blob) for blob in self.inputs)

    @property
    def writes(self) -> Blobs:
        return tuple(("device", blob) for blob in self.outputs)


Step = Pack | Unpack | HostStep | DeviceStep


@dataclass
class Schedule:
    """Steps in order.

    ``views``   the blobs that are parts of others
    ``shapes``  shapes of blobs that no layer writes: the joint blobs of merged convolutions, and unfolded inputs
    """

    steps: list[Step] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    @property
    def conversions(self) -> list[Pack | Unpack]:
        """The Packs and Unpacks, in order."""
        return [step for step in self.steps if isinstance(step, (Pack, Unpack))]

    @property
    def segments(self) -> list[DeviceStep]:
        """The steps on the overlay, in order."""
        return [step for step in self.steps if isinstance(step, DeviceStep)]

    @property
    def from_host(self) -> dict[str, Format]:
        """Blobs that the host writes and the device reads, with the format of their codes."""
        return {step.blob: step.format for step in self.steps if isinstance(step, Pack)}

    def engines(self) -> list[str]:
        """Return engine and type of each step: ``host:Pack``, ``fpga:Convolution``, ``host:gemm``."""
        return list(self._words())

    def __repr__(self) -> str:
        return f"<Schedule: {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        """Return a table of the steps for notebooks: conversions, host layers, and segments on the overlay."""

        head = ("step", "engine", "layers", "Tasks", "reads", "writes", "why")
        rows = [(str(i), *_cells(step)) for i, step in enumerate(self.steps)]
        if not rows:
            return html.notebook(html.paragraph("no steps yet: they are known when the formats are (net.calibrate)"))
        return html.notebook(html.rows(Table(head, rows, "rllrlll")))

    def _words(self) -> Iterator[str]:
        for step in self.steps:
            if isinstance(step, DeviceStep):
                yield from (f"fpga:{layer.type}" for layer in step.layers)
            else:
                yield f"host:{step.layer.type if isinstance(step, HostStep) else step.type}"


def lower(partition: Partition, target: Target) -> dict[str, list[Task]] | tuple[str, str]:
    """Return the Tasks of every layer on the device, or (layer, reason) for the first that does not fit."""
    tasks: dict[str, list[Task]] = {}
    for layer in (layer for segment in partition.segments if segment.engine == "fpga" for layer in segment.layers):
        lowered = _lowered(layer, target)
        if isinstance(lowered, str):
            return layer.name, lowered
        tasks[layer.name] = lowered
    return tasks


def _lowered(layer: Layer, target: Target) -> list[Task] | str:
    own = target.overlay.own
    try:
        tasks = layer.lower(target)
        refused = (own.refusal(target.overlay, task, target.shapes) for task in tasks) if own else ()
        return next(filter(None, refused), tasks)
    except Unsupported as reason:
        return str(reason)
    except ModelError as error:
        raise layer.failure(error) from error


def schedule(
    graph: Graph,
    partition: Partition,
    shapes: Mapping[str, Shape],
    target: Target,
    tasks: dict[str, list[Task]],
) -> Schedule:
    """Return the Schedule of segments whose layers are lowered, with a Pack or Unpack wherever one is needed."""
    on_device = [layer for segment in partition.segments if segment.engine == "fpga" for layer in segment.layers]
    result = Schedule(views=_views(tasks, set(graph.inputs)))
    for layer in on_device:
        parts = layer.parts(target.shapes[layer.bottoms[0]])
        result.views.update((top, View(layer.bottoms[0], first)) for top, first in parts.items())
    steps: list[HostStep | DeviceStep] = []
    codes: set[str] = set()  # blobs that are on the device
    for index, segment in enumerate(partition.segments):
        if segment.engine == "host":
            for layer in segment.layers:
                step = HostStep(
                    layer,
                    partition.reasons[layer.name],
                    layer.takes_codes(tuple(shapes[b] for b in layer.bottoms)) and codes.issuperset(layer.bottoms),
                )
                steps.append(step)
                codes.update(layer.tops if step.codes else ())
        else:
            tops = {top for layer in segment.layers for top in layer.tops}
            inputs = tuple(dict.fromkeys(b for layer in segment.layers for b in layer.bottoms if b not in tops))
            outside = {*graph.output_blobs, *_read_outside(partition, index)}
            outputs = tuple(top for layer in segment.layers for top in layer.tops if top in outside)
            work = [t for layer in segment.layers for t in tasks[layer.name] if not _is_view(t, result.views)]
            joined = [task.joined(target.overlay) for task in work]
            merged = merge_parallel(joined, result.views, target.shapes, target.overlay)
            result.views.update(merged.views)
            result.shapes.update(merged.shapes)
            steps.append(DeviceStep(tuple(merged.tasks), tuple(segment.layers), inputs, outputs))
            codes.update(inputs, tops)
    result.steps = insert_pack_unpack(steps, graph.inputs, graph.output_blobs, target.formats)
    _unfold_inputs(result, graph.inputs, target)
    return result


def _unfold_inputs(scheduled: Schedule, inputs: Collection[str], target: Target) -> None:
    """Unfold the inputs of a network that only one Task reads, where that is faster."""
    shared = {view.base for view in scheduled.views.values()}
    shared.update(
        b for step in scheduled.steps if isinstance(step, HostStep) and step.codes for b in step.layer.bottoms
    )
    segments = {i: step for i, step in enumerate(scheduled.steps) if isinstance(step, DeviceStep)}
    shapes = {**target.shapes, **scheduled.shapes}
    tasks = [task for step in segments.values() for task in step.tasks]
    unfolding = unfold_inputs(tasks, set(inputs) - shared, shapes, target.overlay)
    scheduled.shapes.update(unfolding.shapes)
    for i, step in enumerate(scheduled.steps):
        if isinstance(step, Pack) and step.blob in unfolding.unfolds:
            scheduled.steps[i] = replace(step, unfold=unfolding.unfolds[step.blob])
    for i, step in segments.items():
        names = tuple(unfolded_name(blob) if blob in unfolding.unfolds else blob for blob in step.inputs)
        scheduled.steps[i] = replace(step, tasks=tuple(map(unfolding.tasks.__getitem__, step.tasks)), inputs=names)


def with_plain_inputs(scheduled: Schedule, packs: Collection[Pack]) -> Schedule:
    """Return a Schedule of the same codes in which these ``packs`` unfold nothing, if that can be."""
    steps = list(scheduled.steps)
    for at, pack in enumerate(scheduled.steps):
        if not isinstance(pack, Pack) or pack.unfold is None or pack not in packs:
            continue
        name = unfolded_name(pack.blob)
        plain = {
            task: task.from_plain(pack.unfold, pack.blob)
            for step in scheduled.segments
            for task in step.tasks
            if name in task.inputs
        }
        if None in plain.values() or name in {view.base for view in scheduled.views.values()}:
            continue
        steps[at] = replace(pack, unfold=None)
        for i, step in enumerate(steps):
            if isinstance(step, DeviceStep) and name in step.inputs:
                inputs = tuple(pack.blob if blob == name else blob for blob in step.inputs)
                steps[i] = replace(step, tasks=tuple(plain.get(t) or t for t in step.tasks), inputs=inputs, chain=None)
    return replace(scheduled, steps=steps)


def insert_pack_unpack(
    steps: Iterable[HostStep | DeviceStep], inputs: Iterable[str], outputs: Iterable[str], formats: Mapping[str, Format]
) -> list[Step]:
    """Return the steps with a Pack or Unpack before the first step that reads a blob on the other side.

    The network's ``inputs`` begin on the host; its ``outputs`` end there.
    """
    present: dict[Side, set[str]] = {"host": set(inputs), "device": set()}
    result: list[Step] = []

    def convert(reads: Iterable[tuple[Side, str]]) -> None:
        for side, blob in reads:
            if blob not in present[side]:
                result.append((Pack if side == "device" else Unpack)(blob, formats[blob]))
                present[side].add(blob)

    for step in steps:
        convert(step.reads)
        result.append(step)
        for side, blob in step.writes:
            present[side].add(blob)
    convert(("host", blob) for blob in outputs)
    return result


def _read_outside(partition: Partition, index: int) -> Iterator[str]:
    """Yield the blobs read by layers on the host or of segments after this one."""
    for i, segment in enumerate(partition.segments):
        if segment.engine == "host" or i > index:
            yield from (blob for layer in segment.layers for blob in layer.bottoms)


def _cells(step: Step) -> tuple[str, ...]:
    """Return engine, layers, number of Tasks, blobs read, blobs written, and the reason or format."""
    reads, writes = (_some([blob for _, blob in blobs]) for blobs in (step.reads, step.writes))
    if isinstance(step, HostStep):
        return step.layer.engine, step.layer.name, "", reads, writes, step.reason
    if isinstance(step, DeviceStep):
        names = [layer.name for layer in step.layers]
        several = f" ({len(names)} layers)" if len(names) > 1 else ""
        ends = " .. ".join(dict.fromkeys((names[0], names[-1])))
        return "fpga", ends + several, str(len(step.tasks)), reads, writes, ""
    return "host", str(step), "", reads, writes, str(step.format)


def _some(blobs: Sequence[str]) -> str:
    return ", ".join(blobs[:3]) + (f" and {len(blobs) - 3} more" if len(blobs) > 3 else "")


def _is_view(task: Task, views: Mapping[str, View]) -> bool:
    """Return whether a Task is a no-op because its input is a part of its output."""
    view = task.as_view()
    return view is not None and views.get(task.inputs[0]) == view


def _views(tasks: Mapping[str, list[Task]], inputs: Collection[str]) -> dict[str, View]:
    """Return the bottoms that can be written directly into their concat.

    They have its format, are written by a Task, and are bottoms of one concat only.
    """
    every = [task for listed in tasks.values() for task in listed]
    written = {task.output for task in every if not task.in_parts}
    views: dict[str, View] = {}
    for task in every:
        view, blob = task.as_view(), task.inputs[0]
        if view is not None and blob in written and blob not in inputs:
            views.setdefault(blob, view)
    return views
