"""Plans of a network, and what runs them, for its latest input sizes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ...blob import Shape
from ...fixed import Format
from ...graph import Graph
from ...overlay import Overlay
from ...util.data import malloc
from ..host.forward import HostPass
from ..host.layer import check_weights, prepare
from ..host.memory import claimed

if TYPE_CHECKING:
    from ...devices.base import Device
    from ...offload.plan import Plan
    from ...overlay.host_model import HostModel
    from ..execution import Execution
    from .parameters import Parameters

SIZES = 4  # input sizes that stay prepared, and whose schedules are kept
Key = tuple[Shape | None, ...]


class Plans:
    """The runners of a graph: on an overlay Executions for its latest input sizes, without one a pass on the host.

    ``chosen``   the user's engines, layer -> host or fpga
    ``placing``  model by which segments that do not pay move to the host; None to leave them
    """

    def __init__(
        self,
        parameters: Parameters,
        device: Device,
        overlay: Overlay | None,
        chosen: Mapping[str, str],
        placing: HostModel | None,
    ) -> None:
        self._parameters, self._graph = parameters, parameters.graph
        self._device, self._overlay, self._chosen, self._placing = device, overlay, dict(chosen), placing
        renewed = [top for layer in self._graph.layers if layer.renews for top in layer.tops]
        self._sized = [*self._graph.inputs, *renewed]  # the blobs that determine all other shapes
        self._prepared = deque[Key](maxlen=SIZES)
        self._executions: dict[Key, Execution] = {}
        # of all plans: the graph after the passes, with copies of the weights that these change, and its engines
        self._rewritten: tuple[Graph, Mapping[str, str]] | None = None
        self._host: HostPass | None = None  # for the shapes that were asked for last

    def _key(self, shapes: Mapping[str, Shape]) -> Key:
        """Return the sizes that determine all other shapes."""
        return tuple(map(shapes.get, self._sized))

    def prepare(self, shapes: Mapping[str, Shape]) -> None:
        """Prepare the layers for these shapes unless they are, and claim memory for as many bytes as a pass needs."""
        key = self._key(shapes)
        if key in self._prepared:
            self._prepared.remove(key)
        else:
            for layer in self._graph.layers:
                prepare(layer, shapes, self._parameters.weights is None)
            claim = malloc.claim if self._overlay is None else malloc.keep_freed
            claim(claimed(shapes))
        self._prepared.append(key)

    def known(self, shapes: Mapping[str, Shape]) -> bool:
        """Return whether there is an Execution for these shapes."""
        return self._key(shapes) in self._executions

    def host(self, shapes: Mapping[str, Shape]) -> HostPass:
        """Return what runs batches of these shapes without an overlay. Raises ShapeError."""
        if self._host is None or self._host.shapes is not shapes:
            self._host = HostPass(self._graph, shapes)
        return self._host

    def execution(
        self,
        shapes: Mapping[str, Shape],
        keep: Collection[str],
        formats: Mapping[str, Format] | None,
        final: bool,
        counting: bool,
    ) -> Execution:
        """Return the Execution for batches of these shapes on the overlay, ``counting`` codes; ``formats`` as of ``plan``."""
        key = self._key(shapes)
        if key not in self._executions:
            from .. import execution, folded  # not needed by a float network

            if len(self._executions) == SIZES:
                oldest = next(iter(self._executions))
                self._executions.pop(oldest).close()  # each has its own copy of the weights' codes
            planned = self.plan(shapes, formats, final)
            kept = {blob for blob in self._graph.latest.values() if blob in keep}
            away = folded.Folded(self._graph, planned.graph, planned.schedule, shapes, kept)
            self._executions[key] = execution.Execution(planned, self._device, away, counting)
        return self._executions[key]

    def plan(
        self, shapes: Mapping[str, Shape], formats: Mapping[str, Format] | None = None, final: bool = False
    ) -> Plan:
        """Return a Plan for these shapes, whose ``formats`` may be ``final``.

        Without formats it is only who runs where, before weights refuse anything.
        """
        from ...offload.planning import plan, rewritten  # not needed by a float network

        assert self._overlay is not None
        check_weights(self._graph.layers, shapes)  # the arrays that are lent may have been replaced
        trained = self._parameters.trained or final  # a schedule for display needs no weights
        graph, chosen = self._rewritten or rewritten(self._graph, self._chosen, self._overlay)
        if not self._parameters.lent:
            self._rewritten = graph, chosen
        return plan(graph, shapes, self._overlay, chosen, formats, trained, self._placing)

    def replan(self) -> None:
        """Forget the Executions: they are for other formats."""
        for execution in self._executions.values():
            execution.close()
        self._executions.clear()

    def reread(self) -> None:
        """Forget everything: it is for other weights."""
        self.replan()
        self._rewritten = self._host = None
