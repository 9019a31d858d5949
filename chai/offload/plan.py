"""A network split between an overlay and the host, for one set of input sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..blob import Shape
from ..devices.base import Device
from ..fixed import Format
from ..graph import Graph
from ..overlay import Overlay
from ..passes.rewrite import rewrite
from ..runtime.execution import Execution
from ..runtime.folded import Folded
from ..tasks.target import Target
from ..util.log import logger
from .cost import costs
from .partition import Partition, partition
from .schedule import Schedule, lower, schedule

log = logger("chai.offload")


class Offload(Execution):
    """The Execution of a Graph that is partitioned, lowered and scheduled here.

    ``formats``  of every blob, by blob id of the rewritten graph; None to look only at what the overlay can run
    ``chosen``   the user's engines, layer -> host or fpga
    ``keep``     ids of the prototxt's blobs that a pass is asked for; they change nothing of the plan
    ``trained``  False to plan as if all sums fitted the accumulator; ``open_sums`` then names the layers on the overlay
                 for which that depends on the weights to come
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Shape],
        overlay: Overlay,
        device: Device,
        chosen: Mapping[str, str],
        keep: Collection[str],
        formats: Mapping[str, Format] | None,
        trained: bool = True,
    ) -> None:
        rewritten = rewrite(graph)
        standing = {name for layer in rewritten.layers for name in layer.origin}
        dropped = {layer.name for layer in graph.layers} - standing  # they run nowhere: nothing to choose
        self._chosen = {name: engine for name, engine in chosen.items() if name not in dropped}
        self.partition: Partition = partition(rewritten, shapes, overlay, self._chosen, {})
        target = Target(overlay, formats or {}, shapes, trained)
        steps = Schedule() if formats is None else self._scheduled(rewritten, target)
        super().__init__(rewritten, shapes, overlay, device, steps, formats or {})
        self.folded = Folded(graph, rewritten, steps, shapes, keep)
        if formats is not None and not trained:
            placed = (layer for s in self.partition.segments if s.engine == "fpga" for layer in s.layers)
            self.open_sums = frozenset(
                layer.name
                for layer in placed
                if layer.blobs and target.may_overflow(layer.blobs[0], layer.precision, layer.bottoms[0], layer.tops[0])
            )

    def _scheduled(self, graph: Graph, target: Target) -> Schedule:
        """The schedule; what does not fit the overlay, or does not pay, goes to the host: each time some layers less."""
        refused: dict[str, str] = {}
        while True:
            tasks = lower(self.partition, target)
            if isinstance(tasks, tuple):
                moved = dict([tasks])
            else:
                found = schedule(graph, self.partition, target, tasks)
                moved = self._too_dear(found, target)
                if not moved:
                    return found
            for name, reason in moved.items():
                log.info("layer %r runs on the host: %s", name, reason)
            refused.update(moved)
            self.partition = partition(graph, target.shapes, target.overlay, self._chosen, refused)

    def _too_dear(self, found: Schedule, target: Target) -> dict[str, str]:
        """The layers of the first segment that costs less on the host, with that as reason; none that the user chose."""
        for cost in costs(found, target.overlay, {**target.shapes, **found.shapes}):
            stays = any(self._chosen.get(name) == "fpga" for layer in cost.layers for name in layer.origin)
            if cost.host_ms < cost.fpga_ms and not stays:
                return {layer.name: f"cheaper on the host: {cost}" for layer in cost.layers}
        return {}
