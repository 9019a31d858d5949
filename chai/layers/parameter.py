"""Parameter: a trained blob."""

from __future__ import annotations

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import BlobShape, MessageFields, nested


class Parameter(Layer):
    """Has no bottom; the top is the blob."""

    bottoms_allowed = (0, 0)

    class Params(MessageFields):
        shape: BlobShape | None = nested(BlobShape)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = self.params.shape.dim if self.params.shape else ()
        if any(d < 1 for d in shape):
            raise self.wrong("a size must be at least 1")
        return (shape,)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return self.shapes()

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (self.blobs[0].copy(),)  # a later layer, or the caller, may write into it
