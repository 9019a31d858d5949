"""Schedule: the steps of one forward pass, and the conversions between host and device.

Every step has the blobs it reads and writes, and their side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ..blob import Shape, View
from ..fixed import Format
from ..graph import Layer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.unfold import Unfold
from ..tasks.work import Work
from ..text import number_of, visible

if TYPE_CHECKING:
    from ..codegen.memory_map import HostBlobs

Side = Literal["host", "device"]  # of a blob: float32 on the host, codes on the device
Blobs = tuple[tuple[Side, str], ...]


def unfolded_name(blob: str) -> str:
    """Return the name of an input's unfolded blob."""
    return f"{blob} unfolded"


@dataclass(frozen=True, eq=False)
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
    def result(self) -> str:
        """Return the name of the blob that it writes."""
        return self.blob

    @property
    def reads(self) -> Blobs:
        return ((self.source, self.blob),)

    @property
    def writes(self) -> Blobs:
        return ((self.target, self.result),)

    def __str__(self) -> str:
        return visible(f"{self.type} {self.blob}")


@dataclass(frozen=True, eq=False)
class Pack(Conversion):
    """Conversion from float32 on the host to codes on the device, unfolded by ``unfold`` if that is not None."""

    source, target = "host", "device"
    unfold: Unfold | None = None

    @property
    def result(self) -> str:
        """Return the name of its codes, which is another one if they are unfolded."""
        return self.blob if self.unfold is None else unfolded_name(self.blob)


class Unpack(Conversion):
    """Conversion from codes on the device to float32 on the host."""

    source, target = "device", "host"


class HostStep(NamedTuple):
    """One layer in float32; with ``codes`` one that works directly on the device's codes."""

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


class DeviceStep(NamedTuple):
    """One segment on the device: its Tasks in order; ``inputs`` and ``outputs`` are its blobs that other steps write and read.

    ``chain`` has the Tasks as a Chain, or what the overlay's architecture has instead, if the network was compiled before.
    """

    tasks: tuple[Task, ...]
    layers: tuple[Layer, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    chain: Any = None

    def __repr__(self) -> str:
        reads, writes = ", ".join(self.inputs), ", ".join(self.outputs)
        return visible(f"<DeviceStep: {number_of(len(self.tasks), 'Task')}, {reads} -> {writes}>")

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


@dataclass(eq=False, repr=False)
class Schedule:
    """Steps in order.

    ``views``   the blobs that are parts of others
    ``shapes``  shapes of blobs that no layer writes: joint blobs of merged convolutions, unfolded inputs, and those ``between``
    ``between``  formats of the blobs that only Tasks of one layer write and read
    """

    steps: list[Step] = field(default_factory=list)
    views: dict[str, View] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    between: dict[str, Format] = field(default_factory=dict)

    @property
    def conversions(self) -> list[Pack | Unpack]:
        """The Packs and Unpacks, in order."""
        return [step for step in self.steps if isinstance(step, (Pack, Unpack))]

    @property
    def segments(self) -> list[DeviceStep]:
        """The steps on the overlay, in order."""
        return [step for step in self.steps if isinstance(step, DeviceStep)]

    def compiled(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> Iterator[HostBlobs]:
        """Yield what each segment is on the overlay, in order; ``shapes`` are those of blobs on the device."""
        from ..codegen.compile import executable  # a compiled file has its own

        for step in self.segments:
            yield step.chain or executable(step.work(overlay, shapes, self.views))

    @property
    def from_host(self) -> dict[str, Format]:
        """Blobs that the host writes and the device reads, with the format of their codes."""
        return {step.blob: step.format for step in self.steps if isinstance(step, Pack)}

    def engines(self) -> list[str]:
        """Return engine and type of each step: ``host:Pack``, ``fpga:Convolution``, ``host:gemm``."""
        words: list[str] = []
        for step in self.steps:
            if isinstance(step, DeviceStep):
                words += [f"fpga:{layer.type}" for layer in step.layers]
            else:
                words.append(f"host:{step.layer.type if isinstance(step, HostStep) else step.type}")
        return words

    def __repr__(self) -> str:
        return f"<Schedule: {number_of(len(self.steps), 'step')}>"

    def _repr_html_(self) -> str:
        """Return a table of the steps for notebooks: conversions, host layers, and segments on the overlay."""
        from ..util import html, table  # only notebooks show it

        head = ("step", "engine", "layers", "Tasks", "reads", "writes", "why")
        rows = [(str(i), *_cells(step)) for i, step in enumerate(self.steps)]
        if not rows:
            return html.notebook(html.paragraph("no steps yet: they are known when the formats are (net.calibrate)"))
        return html.notebook(html.rows(table.Table(head, rows, "rllrlll")))


def with_plain_inputs(
    scheduled: Schedule, shapes: Mapping[str, Shape], reads_plain: Callable[[Unfold, int], bool]
) -> Schedule:
    """Return a Schedule of the same codes whose inputs are plain where that can be and a device ``reads_plain`` ones faster."""
    from ..tasks.conv import Conv  # float networks need no Tasks

    steps = list(scheduled.steps)
    for at, pack in enumerate(scheduled.steps):
        if not isinstance(pack, Pack) or pack.unfold is None or not reads_plain(pack.unfold, shapes[pack.blob][1]):
            continue
        name = unfolded_name(pack.blob)
        plain = {
            task: task.from_plain(pack.unfold, pack.blob) if isinstance(task, Conv) else None
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
                steps[i] = step._replace(tasks=tuple(plain.get(t) or t for t in step.tasks), inputs=inputs, chain=None)
    return replace(scheduled, steps=steps)


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
