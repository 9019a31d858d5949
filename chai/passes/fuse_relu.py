"""fuse_relu: turn a ReLU after a layer whose unit can clamp into a flag of that layer."""

from __future__ import annotations

from ..graph import Graph, Layer
from ..layers.relu import ReLU
from ._edit import joined, merged


def fuse_relu(graph: Graph) -> Graph:
    """Fold a ReLU, leaky ReLU (0 <= slope <= 1) or ReLU6 into the layer before it.

    The layer's output takes the ReLU's format if it has one.
    """
    return joined(graph, _clamping)


def _clamping(first: Layer, second: Layer) -> Layer | None:
    if not isinstance(second, ReLU) or not 0 <= second.params.negative_slope <= 1:
        return None
    if not first.can_clamp or first.slope is not None:
        return None
    layer = merged(first, second)
    layer.slope, layer.ceiling = float(second.params.negative_slope), second.most
    return layer
