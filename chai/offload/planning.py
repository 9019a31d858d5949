"""Plan a network for an overlay: engines, formats and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..blob import Shape, on_device
from ..fixed import Format
from ..graph import Graph
from ..kernels.codes import quantized
from ..overlay import Overlay
from ..overlay.host_model import HostModel
from ..passes.rewrite import rewrite
from ..tasks.arithmetic import Arithmetic, arithmetic
from ..util.log import logger
from .cost import costs
from .join_layers import JoinedFunction, fuse_lookups, join_functions, join_prelu
from .partition import partition
from .plan import Partition, Plan, Segment
from .schedule import Schedule
from .scheduling import lower, schedule

log = logger("chai.offload")


def rewritten(graph: Graph, chosen: Mapping[str, str], overlay: Overlay) -> tuple[Graph, dict[str, str]]:
    """Return a Graph after the passes for an overlay, and the user's engines of the layers that still run."""
    after = rewrite(graph, arithmetic(overlay))
    dropped = graph.by_name.keys() - after.by_origin
    return after, {name: engine for name, engine in chosen.items() if name not in dropped}


def plan(
    graph: Graph,
    shapes: Mapping[str, Shape],
    overlay: Overlay,
    chosen: Mapping[str, str],
    formats: Mapping[str, Format] | None,
    trained: bool = True,
    placing: HostModel | None = None,
) -> Plan:
    """Partition, lower and schedule a Graph after the passes.

    ``chosen``   the user's engines, layer -> host or fpga
    ``formats``  of every blob; None to partition only
    ``trained``  False to plan as if all sums fit the accumulator
    ``placing``  model by which segments that do not pay move to the host; None to leave them
    """
    if formats is None:
        parts = partition(graph, shapes, overlay, chosen, {})
        return Plan(graph, shapes, overlay, {}, parts, Schedule())
    on_overlay = {blob: on_device(shape) for blob, shape in shapes.items()}
    target = arithmetic(overlay)(overlay, formats, on_overlay, trained, quantize=quantized)
    # layers that the overlay would run as one, but which run on the host
    apart = {name for name, engine in chosen.items() if engine == "host"}
    while True:
        joined = join_prelu(join_functions(graph, overlay, formats, apart), shapes, overlay, formats, apart)
        parts, after, fused, steps = _scheduled(joined, shapes, target, chosen, placing)
        host = parts.on("host")
        split = {part.name for layer in host if isinstance(layer, JoinedFunction) for part in layer.parts_of_it}
        split.update(name for layer in host if layer.slopes is not None for name in layer.origin)
        if not split:
            break
        apart |= split
    open_sums = frozenset(  # whose sums would overflow the accumulator for some weights
        x.name
        for x in parts.on("fpga")
        if not trained and x.blobs and target.may_overflow(x.weight_rows, x.precision, x.bottoms[0], x.tops[0])
    )
    tops = {layer.name: layer.tops[0] for layer in parts.on("fpga")}
    coarser = {name: target.coarser[top] for name, top in tops.items() if top in target.coarser}
    every = {**shapes, **steps.shapes}
    return Plan(after, every, overlay, formats, fused, steps, open_sums, coarser)


def _scheduled(
    graph: Graph,
    shapes: Mapping[str, Shape],
    target: Arithmetic,
    chosen: Mapping[str, str],
    placing: HostModel | None,
) -> tuple[Partition, Graph, Partition, Schedule]:
    """Schedule layers on the overlay; those that do not fit, or do not pay by ``placing``, move to the host.

    Returns the Partition, Graph and Partition with layers fused, and the Schedule of those.
    """
    refused: dict[str, str] = {}
    while True:
        whole, parts = _apart(graph, partition(graph, shapes, target.overlay, chosen, refused))
        tasks = lower(parts, target)
        if isinstance(tasks, tuple):
            moves = dict([tasks])
        else:
            after, fused, tasks = fuse_lookups(whole, parts, tasks, target.overlay)
            steps = schedule(after, fused, shapes, target, tasks)
            moves = {} if placing is None else _too_dear(steps, target, chosen, placing)
            if not moves:
                return parts, after, fused, steps
        for name, reason in moves.items():
            log.info("layer %r runs on the host: %s", name, reason)
        refused.update(moves)


def _apart(graph: Graph, parts: Partition) -> tuple[Graph, Partition]:
    """Return both with each joined layer that runs on the host replaced by the layers that it was joined from."""
    before = {layer.name: own for layer in parts.on("host") if (own := layer.apart())}
    if not before:
        return graph, parts
    segments = [
        Segment(s.engine, [own for layer in s.layers for own in before.get(layer.name, [layer])])
        for s in parts.segments
    ]
    reasons = {own.name: parts.reasons[name] for name, each in before.items() for own in each}
    layers = [own for layer in graph.layers for own in before.get(layer.name, [layer])]
    written = {top for layer in layers for top in layer.tops}
    folded = {blob: name for blob, name in graph.folded.items() if blob not in written}
    return replace(graph, layers=layers, folded=folded), Partition(segments, {**parts.reasons, **reasons})


def _too_dear(steps: Schedule, target: Arithmetic, chosen: Mapping[str, str], placing: HostModel) -> dict[str, str]:
    """Return layer -> reason for the first segment that does not pay; never layers that the user chose."""
    overlay, shapes = target.overlay, {**target.shapes, **steps.shapes}
    for cost in costs(steps, steps.compiled(overlay, shapes), overlay, shapes, placing):
        stays = any(chosen.get(name) == "fpga" for layer in cost.layers for name in layer.origin)
        if not cost.pays and not stays:
            return {
                name: f"cheaper on the host: {cost}" for layer in cost.layers for name in (layer.name, *layer.origin)
            }
    return {}
