"""MatMul: products of the matrices in the last two axes of two blobs."""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..graph import Layer
from ..util.lazy_numpy import np
from .pairs import broadcast


class MatMul(Layer):
    """(..., M, K) times (..., K, N) is (..., M, N), as in ONNX; axes before these are repeated where they are missing or 1.

    A bottom of one axis is a row if it is the first, a column if it is the second, and has no axis in the top.
    """

    bottoms_allowed = (2, 2)
    new_tops = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        x, y = bottoms
        if not x or not y:
            raise self.wrong("a scalar is no matrix")
        left, right = x if len(x) > 1 else (1, *x), y if len(y) > 1 else (*y, 1)
        if left[-1] != right[-2]:
            raise self.wrong(f"{left[-1]} columns of {show(x)} do not face {right[-2]} rows of {show(y)}")
        lead = broadcast(self, f"the matrices of {show(x)} and {show(y)} do not pair", left[:-2], right[:-2])
        return ((*lead, *left[-2:-1][: len(x) - 1], *right[-1:][: len(y) - 1]),)

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        return count(tops[0]) * bottoms[0][-1]

    def images_alone(self, bottoms: tuple[Shape, ...]) -> bool:
        return all(len(bottom) > 2 for bottom in bottoms)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.asarray(np.matmul(*bottoms)),)
