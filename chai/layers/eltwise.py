"""Arithmetic of blobs.

Add: the sum of two blobs.
Axpy: a * x + y, with one factor a per image and channel.
Compare: 1 where the numbers of two blobs are in a relation, else 0.
Eltwise: product, weighted sum or maximum of blobs of one shape.
MatMul: products of the matrices in the last two axes of two blobs.
Mul: the product of two blobs.
Where: numbers of one blob or another, place by place.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from math import ceil, floor, log2
from typing import Any, ClassVar

from .. import kernels
from ..blob import Array, Shape, count, show
from ..fixed import Format
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields, choice
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..text import number_of
from ..util.lazy_numpy import np
from ._pick import picks
from .scale import pair_refused

ROUNDING = 0.95  # of the top's step: what all roundings of partial sums may add up to; multipliers are rounded, too


class Eltwise(Layer):
    """Two bottoms or more, element by element."""

    bottoms_allowed = (2, None)
    can_clamp = new_tops = rectifies = precision_expected = pointwise = True

    class Params(MessageFields):
        """coeff applies to SUM: one per bottom, default 1."""

        operation: str = choice("PROD", "SUM", "MAX", default="SUM")
        coeff: tuple[float, ...] = ()

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        for i, shape in enumerate(bottoms[1:], 1):
            if shape != bottoms[0]:
                raise self.wrong(f"bottom {i} is {show(shape)}, bottom 0 is {show(bottoms[0])}; all must be equal")
        coeff = self.params.coeff
        if coeff and len(coeff) != len(bottoms):
            raise self.wrong(f"{len(coeff)} coeff for {number_of(len(bottoms), 'bottom')}")
        if coeff and self.params.operation != "SUM":
            raise self.wrong(f"coeff belongs to SUM, the operation is {self.params.operation}")
        return bottoms[:1]

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        from ..tasks import eltwise  # float networks need no Tasks

        unit, operation = overlay.limits("eltwise", eltwise.EltwiseLimits), self.params.operation
        if unit is not None and operation not in unit.operations:
            return f"the overlay adds; it has no {operation}"
        if operation != "SUM" and self.slope:
            return f"a leaky ReLU after a {operation}"
        if unit is not None and len(bottoms) > unit.inputs and (operation == "PROD" or not picks(overlay)):
            most = f"{'multiplies' if operation == 'PROD' else 'adds'} {unit.inputs}"
            return f"{len(bottoms)} bottoms; the overlay {most}"
        if len(bottoms[0]) != 4:
            return f"a blob of {number_of(len(bottoms[0]), 'axis')}"
        return self.beyond(overlay, "eltwise", size=max(bottoms[0][2:]), channels=bottoms[0][1], leaky=bool(self.slope))

    def lower(self, target: Arithmetic) -> list[Task]:
        p = self.params
        if len(self.bottoms) > 2 and picks(target.overlay):
            return chain(self, target, p.operation, p.coeff or (1.0,) * len(self.bottoms))
        if p.operation != "SUM":
            return [target.pair(self, p.operation)]
        return [target.eltwise(self, p.coeff or (1.0,) * len(self.bottoms))]

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        p = self.params
        never = any(bottoms) if p.operation == "MAX" else all(bottoms) and min(p.coeff, default=1) >= 0
        return never or super().nonnegative(bottoms)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        if len(bottoms) > 2:
            return None
        return kernels.floats.pair(self.params.operation, bottoms[0], self.params.coeff or (1.0, 1.0), rectified)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        if p.coeff:
            bottoms = tuple(np.float32(c) * x for c, x in zip(p.coeff, bottoms))
        operation = {"PROD": np.multiply, "SUM": np.add, "MAX": np.maximum}[p.operation]
        y = operation(bottoms[0], bottoms[1])
        for x in bottoms[2:]:
            y = operation(y, x)
        return (y,)


def chain(layer: Layer, target: Arithmetic, operation: str, coefficients: Sequence[float]) -> list[Task]:
    """Return a Task for each bottom of a layer but the first: it combines the bottom with the result of those before.

    Bottoms come in the order of their largest values, so that partial sums are small. A maximum is exact: all Tasks write the
    top's format, and rounding keeps the order of numbers. A sum is within one code of the exact one, unless a partial sum
    leaves its format: see ``_between``.
    """
    top, formats = layer.tops[0], target.formats
    largest = {b: formats[b].step * max(map(abs, _values(formats[b]))) for b in layer.bottoms}
    terms = sorted((abs(c) * largest[b], b, c) for b, c in zip(layer.bottoms, coefficients))
    first, factor, work = terms[0][1], terms[0][2], list[Task]()
    for at, (_, bottom, coefficient) in enumerate(terms[1:], 1):
        part, before = copy(layer), terms[: at + 1]
        part.bottoms = first, bottom
        if at < len(terms) - 1:
            format = formats[top]
            if operation == "SUM":
                unsigned = all(formats[b].unsigned and c >= 0 for _, b, c in before)
                format = _between(formats[top], sum(largest for largest, _, _ in before), len(terms) - 2, unsigned)
            part.slope = part.ceiling = None
            part.tops = (target.blob_between(top, f"{operation.lower()} {at}", target.shapes[top], format),)
        pair = target.eltwise(part, (factor, coefficient)) if operation == "SUM" else target.pair(part, operation)
        work.append(pair)
        first, factor = part.tops[0], 1.0
    return work


def _values(format: Format) -> tuple[int, int]:
    """Return the least and the largest number of a format, in steps."""
    return format.range[0] - format.zero, format.range[1] - format.zero


def _between(top: Format, bound: float, count: int, unsigned: bool) -> Format:
    """Return the format of one of ``count`` partial sums, whose magnitude is ``bound`` at most.

    Its step is the least without saturation, but so small that ``count`` halves of it are less than the top's step. Numbers that
    are no further apart than that have the same code of the top, or neighbouring codes.
    """
    largest = Format(top.scheme, top.bits, 1.0 if top.scheme == "Xilinx" else 0, unsigned).largest
    most = 2 * ROUNDING * top.step / count
    least = min(bound / largest, most) or most
    if top.scheme == "Xilinx":
        return Format(top.scheme, top.bits, least * largest, unsigned)
    return Format(top.scheme, top.bits, -min(ceil(log2(least)), floor(log2(most))), unsigned)


def broadcast(layer: Layer, problem: str, *shapes: Shape) -> Shape:
    """Return the shape that these have together by numpy's rule. Raises ShapeError, with ``problem``, if they have none."""
    try:
        return tuple(map(int, np.broadcast_shapes(*shapes)))
    except ValueError:
        raise layer.wrong(f"{problem}: axes must be equal or 1") from None


class PairLayer(Layer):
    """Two bottoms, aligned at their last axes; by numpy's rule a missing axis, or one of length 1, is repeated.

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
