"""Arithmetic of two blobs or three, of which numpy's rule repeats the smaller ones.

Add: the sum of two blobs.
Axpy: a * x + y, with one factor a per image and channel.
Compare: 1 where the numbers of two blobs are in a relation, else 0.
MatMul: products of the matrices in the last two axes of two blobs.
Mul: the product of two blobs.
Where: numbers of one blob or another, place by place.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ..blob import Array, Shape, count, show
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields, choice
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from .scale import pair_refused


def broadcast(layer: Layer, problem: str, *shapes: Shape) -> Shape:
    """Return the shape that these have together by numpy's rule. Raises ShapeError, with ``problem``, if they have none."""
    try:
        return tuple(map(int, np.broadcast_shapes(*shapes)))
    except ValueError:
        raise layer.wrong(f"{problem}: axes must be equal or 1") from None


class PairLayer(Layer):
    """Two bottoms, aligned at their last axes; a missing axis, or one of length 1, is repeated.

    So does TensorFlow, the origin of networks with Add and Mul.
    """

    bottoms_allowed = (2, 2)
    follows = own_format = True
    operation: ClassVar[str | None] = None  # Caffe's name of what an overlay computes for it

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (broadcast(self, f"{show(bottoms[0])} and {show(bottoms[1])} do not face each other", *bottoms),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        return self.without_unit if self.operation is None else pair_refused(self, overlay, self.operation, *bottoms)

    def lower(self, target: Arithmetic) -> list[Task]:
        assert self.operation is not None
        return [target.pair(self, self.operation)]


class Add(PairLayer):
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    pointwise = True
    operation = "SUM"

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0] + bottoms[1],)


class Mul(PairLayer):
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    pointwise = True
    operation = "PROD"

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0] * bottoms[1],)


class Compare(PairLayer):
    """Truth values as float32, as of ONNX's Greater, Less and Equal."""

    fork = "ONNX"
    indices = never_negative = True

    class Params(MessageFields):
        operation: str = choice("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "EQUAL", default="GREATER")

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        compare: Any = getattr(np, self.params.operation.lower())
        return (compare(*bottoms).astype(np.float32),)


class Where(Layer):
    """Each number is that of bottom 1 where bottom 0 is not 0, else that of bottom 2; axes that are missing or 1 are repeated."""

    bottoms_allowed = (3, 3)
    new_tops = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (broadcast(self, f"{', '.join(map(show, bottoms))} do not face each other", *bottoms),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.where(bottoms[0] != 0, bottoms[1], bottoms[2]),)


class Axpy(Layer):
    """Bottoms: a (N, C) or (N, C, 1, 1), x and y of the same shape (N, C, ...)."""

    fork = "hujie-frank/SENet"
    bottoms_allowed = (3, 3)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        a, x, y = bottoms
        if x != y or len(x) < 2 or a not in (x[:2], (*x[:2], 1, 1)):
            raise self.wrong(
                f"{show(a)} * {show(x)} + {show(y)}: expected one factor per image and channel of two equal blobs"
            )
        return (x,)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        a, x, y = bottoms
        return (a.reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * x + y,)


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
