"""Make the Schedule of a partitioned network: lower its layers to Tasks, merge and unfold them, convert at the borders.

Before a step that reads a blob which is only on the other side, ``insert_pack_unpack`` inserts a Pack or Unpack, once per
blob and side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ..blob import Shape, View
from ..errors import ModelError
from ..fixed import Format
from ..graph import Graph
from ..tasks import Task
from ..tasks.arithmetic import Arithmetic
from ..tasks.conv import Conv
from ..tasks.depthwise import in_window_engine
from ..tasks.unfold import Unfold
from ..tasks.unsupported import Unsupported
from .merge_parallel import merge_parallel
from .plan import Partition
from .schedule import DeviceStep, HostStep, Pack, Schedule, Side, Step, Unpack, unfolded_name


def lower(partition: Partition, target: Arithmetic) -> dict[str, list[Task]] | tuple[str, str]:
    """Return the Tasks of every layer on the device, or (layer, reason) for the first that does not fit.

    A blob has no format if only layers on the host have it as long as no layers are joined.
    """
    tasks: dict[str, list[Task]] = {}
    own = target.overlay.own
    try:
        for layer in partition.on("fpga"):
            if not target.formats.keys() >= {*layer.bottoms, *layer.tops}:
                return layer.name, "no format was measured for it"
            tasks[layer.name] = layer.lower(target)
            refusals = (own.refusal(target.overlay, task, target.shapes) for task in tasks[layer.name]) if own else ()
            if (refusal := next(filter(None, refusals), None)) is not None:
                return layer.name, refusal
    except Unsupported as reason:
        return layer.name, str(reason)
    except ModelError as error:
        raise layer.failure(error) from error
    return tasks


def schedule(
    graph: Graph,
    partition: Partition,
    shapes: Mapping[str, Shape],
    target: Arithmetic,
    tasks: dict[str, list[Task]],
) -> Schedule:
    """Return the Schedule of segments whose layers are lowered, with a Pack or Unpack wherever one is needed."""
    result = Schedule(views=_views(tasks, set(graph.inputs)))
    for layer in partition.on("fpga"):
        parts, computed = layer.parts(target.shapes[layer.bottoms[0]]), {task.output for task in tasks[layer.name]}
        result.views |= {top: View(layer.bottoms[0], first) for top, first in parts.items() if top not in computed}
    steps: list[HostStep | DeviceStep] = []
    codes: set[str] = set()  # blobs that are on the device
    for index, segment in enumerate(partition.segments):
        if segment.engine == "host":
            for layer in segment.layers:
                own = layer.beside(target.on_host)
                on_codes = codes.issuperset(layer.bottoms) and own.takes_codes(tuple(shapes[b] for b in layer.bottoms))
                steps.append(HostStep(own, partition.reasons[layer.name], on_codes))
                codes.update(layer.tops if on_codes else ())
        else:
            tops = {top for layer in segment.layers for top in layer.tops}
            inputs = tuple(dict.fromkeys(b for layer in segment.layers for b in layer.bottoms if b not in tops))
            later = (layer for segment in partition.segments[index + 1 :] for layer in segment.layers)
            outside = {*graph.output_blobs, *(b for layer in later for b in layer.bottoms)}
            outputs = tuple(top for layer in segment.layers for top in layer.tops if top in outside)
            work = [t for layer in segment.layers for t in tasks[layer.name] if not _is_view(t, result.views)]
            overlay = target.overlay
            joined = [task.joined(overlay) if isinstance(task, Conv) else task for task in work]
            placed = [in_window_engine(task, overlay, target.shapes) for task in joined]
            used = dict.fromkeys(blob for task in work for blob in (*task.inputs, task.output))
            between = [blob for blob in used if blob in target.between]
            result.shapes.update((blob, target.shapes[blob]) for blob in between)
            result.between.update((blob, target.formats[blob]) for blob in between)
            result.views.update((blob, target.parts[blob]) for blob in between if blob in target.parts)
            merged = merge_parallel(placed, result, target.shapes, overlay)
            steps.append(DeviceStep(tuple(merged), tuple(segment.layers), inputs, outputs))
            codes.update(inputs, tops)
    result.steps = insert_pack_unpack(steps, graph.inputs, graph.output_blobs, target.formats, target.packing)
    _unfold_inputs(result, graph.inputs, target)
    return result


def _unfold_inputs(scheduled: Schedule, inputs: Collection[str], target: Arithmetic) -> None:
    """Unfold the inputs of a network that only one Task reads, where that is faster: taps then fill the array's inputs.

    The host writes such an input anyway, and packs it unfolded (``tasks.unfold``). Tasks are rewritten, not layers of the
    Graph, so formats, blobs of layers and reports do not change.
    """
    shared = {view.base for view in scheduled.views.values()}
    shared.update(
        b for step in scheduled.steps if isinstance(step, HostStep) and step.codes for b in step.layer.bottoms
    )
    shapes = {**target.shapes, **scheduled.shapes}
    tasks = [task for step in scheduled.segments for task in step.tasks]
    readers = Counter(blob for task in tasks for blob in task.inputs)
    rewritten: dict[Task, Task] = {}
    unfolds: dict[str, Unfold] = {}
    for task in tasks:
        blob, name = task.inputs[0], unfolded_name(task.inputs[0])
        if not isinstance(task, Conv) or blob not in inputs or blob in shared or readers[blob] > 1 or name in shapes:
            continue
        unfold = task.unfolding(target.overlay, shapes[blob])
        if unfold is not None:
            rewritten[task] = task.unfolded(unfold, name)
            unfolds[blob] = unfold
            scheduled.shapes[name] = unfold.shape(shapes[blob])
    for i, step in enumerate(scheduled.steps):
        if isinstance(step, Pack) and step.blob in unfolds:
            scheduled.steps[i] = replace(step, unfold=unfolds[step.blob])
        elif isinstance(step, DeviceStep):
            names = tuple(unfolded_name(blob) if blob in unfolds else blob for blob in step.inputs)
            scheduled.steps[i] = step._replace(tasks=tuple(rewritten.get(t, t) for t in step.tasks), inputs=names)


def insert_pack_unpack(
    steps: Iterable[HostStep | DeviceStep],
    inputs: Collection[str],
    outputs: Iterable[str],
    formats: Mapping[str, Format],
    packing: Callable[[Format, bool], Format] = Arithmetic.packing,
) -> list[Step]:
    """Return the steps with a Pack or Unpack before the first step that reads a blob on the other side.

    The network's ``inputs`` begin on the host; its ``outputs`` end there. ``packing`` is the arithmetic's, see ``Arithmetic``.
    """
    present: dict[Side, set[str]] = {"host": set(inputs), "device": set()}
    result: list[Step] = []

    def convert(reads: Iterable[tuple[Side, str]]) -> None:
        for side, blob in reads:
            if blob not in present[side]:
                format = formats[blob]
                result.append(Pack(blob, packing(format, blob in inputs)) if side == "device" else Unpack(blob, format))
                present[side].add(blob)

    for step in steps:
        convert(step.reads)
        result.append(step)
        for side, blob in step.writes:
            present[side].add(blob)
    convert(("host", blob) for blob in outputs)
    return result


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
