"""Schedule: the steps of one forward pass, and the conversions between them.

Every reader states where it wants a blob; a blob is where its producer wrote it; a Convert stands once per blob and
wanted place. That is the whole of pack and unpack insertion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import ModelError
from ..fixed import Format
from ..plugins import CustomLayer
from ..tasks.copy import Copy
from ..tasks.target import Target, Unsupported
from .merge_parallel import merge_parallel

if TYPE_CHECKING:
    from ..blob import Shape
    from ..codegen.chain import Chain
    from ..graph import Graph, Layer
    from ..tasks import Task
    from .partition import Partition


@dataclass(frozen=True)
class Convert:
    """Pack: host float32 to codes on the device. Unpack: the way back, with the format the producer wrote."""

    kind: str
    blob: str
    format: Format


@dataclass(frozen=True)
class HostStep:
    """One layer in float32; with ``codes`` a custom layer that works on the device's codes as they are."""

    layer: Layer
    reason: str
    codes: bool = False


@dataclass(frozen=True)
class DeviceStep:
    """One segment on the device: its Tasks in order, ``reads`` and ``writes`` the blobs that cross its edge; ``chain``
    where it was compiled before."""

    tasks: tuple[Task, ...]
    layers: tuple[Layer, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    chain: Chain | None = None


Step = Convert | HostStep | DeviceStep


@dataclass
class Schedule:
    """Steps in order. ``places`` says of a blob that is a part of another: (the other, first channel); ``shapes`` are
    those of blobs that no layer has: wholes of merged convolutions.
    """

    steps: list[Step] = field(default_factory=list)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)

    def engines(self) -> list[str]:
        """Return one word per step, ``host:Pack``, ``fpga:Convolution``, ``host:gemm``: where each layer runs."""
        return list(self._words())

    def __repr__(self) -> str:
        return f"<Schedule: {len(self.steps)} steps>"

    def _repr_html_(self) -> str:
        """Return the steps in a notebook: conversions, host layers, and segments on the overlay."""
        from ..util import html
        from ..util.table import Table

        head = ("step", "engine", "layers", "Tasks", "reads", "writes", "why")
        rows = [(str(i), *_cells(step)) for i, step in enumerate(self.steps)]
        if not rows:
            return html.notebook(html.paragraph("no steps yet: they are known when the formats are (net.calibrate)"))
        return html.notebook(html.rows(Table(head, rows, "rllrlll")))

    def _words(self) -> Iterator[str]:
        for step in self.steps:
            if isinstance(step, Convert):
                yield f"host:{step.kind}"
            elif isinstance(step, HostStep):
                yield f"host:{step.layer.type}"
            else:
                yield from (f"fpga:{layer.type}" for layer in step.layers)


def lower(found: Partition, target: Target) -> dict[str, list[Task]] | tuple[str, str]:
    """Return tasks of every layer on the device, or the (layer, reason) that does not fit."""
    tasks: dict[str, list[Task]] = {}
    for layer in (layer for segment in found.segments if segment.engine == "fpga" for layer in segment.layers):
        made = _lowered(layer, target)
        if isinstance(made, str):
            return layer.name, made
        tasks[layer.name] = made
    return tasks


def _lowered(layer: Layer, target: Target) -> list[Task] | str:
    try:
        return layer.lower(target)
    except Unsupported as reason:
        return str(reason)
    except ModelError as error:
        raise layer.failure(error) from error


def schedule(graph: Graph, found: Partition, target: Target, tasks: dict[str, list[Task]]) -> Schedule:
    """Return steps and conversions for segments whose layers are lowered."""
    result = Schedule(places=_places(tasks, set(graph.inputs)))
    for layer in (layer for segment in found.segments if segment.engine == "fpga" for layer in segment.layers):
        parts = layer.parts(target.shapes[layer.bottoms[0]])
        result.places.update((top, (layer.bottoms[0], first)) for top, first in parts.items())
    host: set[str] = set(graph.inputs)
    device: set[str] = set()
    outside = set(graph.output_blobs) | {
        b for s in found.segments if s.engine == "host" for layer in s.layers for b in layer.bottoms
    }
    for index, segment in enumerate(found.segments):
        if segment.engine == "host":
            for layer in segment.layers:
                codes = _takes_codes(layer, target) and device.issuperset(layer.bottoms)
                result.steps += [] if codes else _converted("Unpack", layer.bottoms, host, target)
                result.steps.append(HostStep(layer, found.reasons[layer.name], codes))
                (device if codes else host).update(layer.tops)
        else:
            reads = dict.fromkeys(b for layer in segment.layers for b in layer.bottoms)
            inside = {t for layer in segment.layers for t in layer.tops}
            result.steps += _converted("Pack", [b for b in reads if b not in inside], device, target)
            later = {b for s in found.segments[index + 1 :] for layer in s.layers for b in layer.bottoms}
            writes = tuple(t for layer in segment.layers for t in layer.tops if t in later or t in outside)
            made = [t for layer in segment.layers for t in tasks[layer.name] if not _in_place(t, result.places)]
            merged = merge_parallel(made, result.places, target.shapes, target.overlay)
            result.places.update(merged.places)
            result.shapes.update(merged.shapes)
            edge = tuple(b for b in reads if b not in inside)
            result.steps.append(DeviceStep(tuple(merged.tasks), tuple(segment.layers), edge, writes))
            device.update(inside)
    result.steps += _converted("Unpack", graph.output_blobs, host, target)
    return result


def _cells(step: Step) -> tuple[str, ...]:
    """Return engine, layers, number of Tasks, blobs read, blobs written, and why or in which format."""
    if isinstance(step, Convert):
        return "host", f"{step.kind} {step.blob}", "", step.blob, step.blob, str(step.format)
    if isinstance(step, HostStep):
        layer = step.layer
        return layer.engine, layer.name, "", _some(layer.bottoms), _some(layer.tops), step.reason
    names = [layer.name for layer in step.layers]
    several = f" ({len(names)} layers)" if len(names) > 1 else ""
    ends = " .. ".join(dict.fromkeys((names[0], names[-1])))
    return "fpga", ends + several, str(len(step.tasks)), _some(step.reads), _some(step.writes), ""


def _some(blobs: Sequence[str]) -> str:
    return ", ".join(blobs[:3]) + (f" and {len(blobs) - 3} more" if len(blobs) > 3 else "")


def _takes_codes(layer: Layer, target: Target) -> bool:
    return isinstance(layer, CustomLayer) and layer.takes_codes(tuple(target.shapes[b] for b in layer.bottoms))


def _converted(kind: str, blobs: Iterable[str], there: set[str], target: Target) -> list[Step]:
    """Return the conversions that bring ``blobs`` to where they are wanted; ``there`` are those that are, and grows."""
    missing = [b for b in dict.fromkeys(blobs) if b not in there]
    there.update(missing)
    return [Convert(kind, b, target.formats[b]) for b in missing]


def _in_place(task: Task, places: dict[str, tuple[str, int]]) -> bool:
    return isinstance(task, Copy) and places.get(task.inputs[0]) == (task.output, task.first)


def _places(tasks: dict[str, list[Task]], inputs: set[str]) -> dict[str, tuple[str, int]]:
    """Branches that can be written straight into their concat: same format, made on the device, in one concat only."""
    made = {t.output for listed in tasks.values() for t in listed if not isinstance(t, Copy)}
    places: dict[str, tuple[str, int]] = {}
    for listed in tasks.values():
        for task in listed:
            if isinstance(task, Copy) and task.requantization is None:
                blob = task.inputs[0]
                if blob in made and blob not in inputs and blob not in places:
                    places[blob] = (task.output, task.first)
    return places
