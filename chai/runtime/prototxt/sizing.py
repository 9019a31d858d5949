"""Input sizes: those that determine all others, and those that the layers are prepared for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from ...blob import Shape
from ...graph import Graph
from ..host.layer import prepare
from ..host.memory import claimed

SIZES = 4  # input sizes that stay prepared, and whose schedules are kept
Key = tuple[Shape | None, ...]


class Sizing:
    """The input sizes that the layers of a graph were prepared for last."""

    def __init__(self, graph: Graph) -> None:
        renewed = [top for layer in graph.layers if layer.renews for top in layer.tops]
        self._layers, self._blobs = graph.layers, [*graph.inputs, *renewed]
        self._prepared = deque[Key](maxlen=SIZES)

    def key(self, shapes: Mapping[str, Shape]) -> Key:
        """Return the sizes that determine all other shapes."""
        return tuple(map(shapes.get, self._blobs))

    def prepare(self, shapes: Mapping[str, Shape], without_weights: bool, claim: Callable[[int], None]) -> None:
        """Prepare the layers for these sizes unless they are, and ``claim`` memory for as many bytes as a pass needs."""
        key = self.key(shapes)
        if key in self._prepared:
            self._prepared.remove(key)
        else:
            for layer in self._layers:
                prepare(layer, shapes, without_weights)
            claim(claimed(shapes))
        self._prepared.append(key)
