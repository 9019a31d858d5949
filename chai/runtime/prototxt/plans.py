"""Plans of a network, and what runs them, by input sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...blob import Shape
from ...graph import Graph
from ...overlay import Overlay
from ..host.forward import HostPass
from ..host.layer import check_weights
from .sizing import SIZES, Key, Sizing

if TYPE_CHECKING:
    from ...devices.base import Device
    from ...offload.plan import Plan
    from ...overlay.host_model import HostModel
    from ..execution import Execution
    from .formats import NetworkFormats
    from .parameters import Parameters


class Plans:
    """The runners of a graph: on an overlay Executions for its latest input sizes, without one a pass on the host.

    ``chosen``   the user's engines, layer -> host or fpga
    ``placing``  model by which segments that do not pay move to the host; None to leave them
    """

    def __init__(
        self,
        parameters: Parameters,
        sizing: Sizing,
        device: Device,
        overlay: Overlay | None,
        chosen: Mapping[str, str],
        placing: HostModel | None,
    ) -> None:
        self._parameters, self._graph, self._sizing = parameters, parameters.graph, sizing
        self._device, self._overlay, self._chosen, self._placing = device, overlay, dict(chosen), placing
        self._executions: dict[Key, Execution] = {}
        # of all plans: the graph after the passes, with copies of the weights that these change, and its engines
        self._rewritten: tuple[Graph, Mapping[str, str]] | None = None
        self._host: HostPass | None = None  # for the shapes that were asked for last

    def known(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether there is an Execution for these shapes."""
        return self._sizing.key(shapes) in self._executions

    def host(self, shapes: Mapping[str, Shape]) -> HostPass:
        """Return what runs batches of these shapes without an overlay. Raises ShapeError."""
        if self._host is None or self._host.shapes is not shapes:
            self._host = HostPass(self._graph, shapes)
        return self._host

    def execution(self, shapes: Mapping[str, Shape], keep: Collection[str], formats: NetworkFormats) -> Execution:
        """Return the Execution for batches of these shapes on the overlay."""
        key = self._sizing.key(shapes)
        if key not in self._executions:
            from .. import execution, folded  # not needed by a float network

            if len(self._executions) == SIZES:
                oldest = next(iter(self._executions))
                self._executions.pop(oldest).close()  # each has its own copy of the weights' codes
            planned = self.plan(shapes, formats)
            kept = {blob for blob in self._graph.latest.values() if blob in keep}
            away = folded.Folded(self._graph, planned.graph, planned.schedule, shapes, kept)
            self._executions[key] = execution.Execution(planned, self._device, away, formats.basis is not None)
        return self._executions[key]

    def plan(self, shapes: Mapping[str, Shape], formats: NetworkFormats | None = None) -> Plan:
        """Return a Plan for these shapes; without ``formats`` only who runs where, before weights refuse anything."""
        from ...offload.planning import plan, rewritten  # not needed by a float network

        assert self._overlay is not None
        check_weights(self._graph.layers, shapes)  # the arrays that are lent may have been replaced
        by_blob, final = (formats.by_blob, formats.calibrated) if formats is not None else (None, False)
        trained = self._parameters.trained or final  # a schedule for display needs no weights
        graph, chosen = self._rewritten or rewritten(self._graph, self._chosen, self._overlay)
        if not self._parameters.lent:
            self._rewritten = graph, chosen
        return plan(graph, shapes, self._overlay, chosen, by_blob, trained, self._placing)

    def replan(self) -> None:
        """Forget the Executions: they are for other formats."""
        for execution in self._executions.values():
            execution.close()
        self._executions.clear()

    def reread(self) -> None:
        """Forget everything: it is for other weights."""
        self.replan()
        self._rewritten = self._host = None
