"""A network split between an overlay and the host, for one set of input sizes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from .devices.base import Device
from .execution import Execution
from .fixed import Format
from .graph import Graph, Shape
from .lowering import Target
from .overlay import Overlay
from .partition import Partition, partition
from .passes.pipeline import rewrite
from .schedule import Schedule, lower, schedule

log = logging.getLogger("chai.offload")


class Offload(Execution):
    """The Execution of a Graph that is partitioned, lowered and scheduled here.

    ``formats``  of every blob, by blob id of the rewritten graph; None to look only at what the overlay can run
    ``chosen``   the user's engines, layer -> host or fpga
    ``keep``     ids of blobs that must stay as the prototxt says them
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
    ) -> None:
        rewritten = rewrite(graph, keep)
        standing = {name for layer in rewritten.layers for name in layer.origin}
        dropped = {layer.name for layer in graph.layers} - standing  # they run nowhere: nothing to choose
        self._chosen = {name: engine for name, engine in chosen.items() if name not in dropped}
        self.partition: Partition = partition(rewritten, shapes, overlay, self._chosen, {})
        found = Schedule() if formats is None else self._scheduled(rewritten, Target(overlay, formats, shapes))
        super().__init__(rewritten, shapes, overlay, device, found, formats or {})

    def _scheduled(self, graph: Graph, target: Target) -> Schedule:
        """The schedule; a layer whose numbers do not fit the overlay goes to the host, one after the other."""
        refused: dict[str, str] = {}
        tasks = lower(self.partition, target)
        while isinstance(tasks, tuple):
            name, reason = tasks
            log.info("layer %r runs on the host: %s", name, reason)
            refused[name] = reason
            self.partition = partition(graph, target.shapes, target.overlay, self._chosen, refused)
            tasks = lower(self.partition, target)
        return schedule(graph, self.partition, target, tasks)
