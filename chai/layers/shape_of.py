"""ShapeOf: the sizes of a blob's axes, as numbers."""

from __future__ import annotations

from ..blob import Array, Shape
from ..graph import Layer
from ..util.lazy_numpy import np


class ShapeOf(Layer):
    """A blob of one axis: what ONNX's Shape returns to the caller, for the batch of this pass."""

    fork = "ONNX"
    indices = whole_batch = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if not bottoms[0]:
            raise self.wrong("a scalar has no axes")
        return ((len(bottoms[0]),),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.array(bottoms[0].shape, np.float32),)
