"""Eltwise: product, weighted sum or maximum of blobs of one shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..graph import Layer, Shape, show
from ..lazy import np
from ..params import choice

if TYPE_CHECKING:
    from ..graph import Array


@dataclass(frozen=True)
class EltwiseParams:
    """coeff belongs to SUM: one per bottom, 1 when not given."""

    operation: str = choice("PROD", "SUM", "MAX", default="SUM")
    coeff: tuple[float, ...] = ()


class Eltwise(Layer):
    """Two bottoms or more, element by element."""

    message = "eltwise_param"
    Params = EltwiseParams
    bottoms_allowed = (2, None)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        for i, shape in enumerate(bottoms[1:], 1):
            if shape != bottoms[0]:
                raise self.wrong(f"bottom {i} is {show(shape)}, bottom 0 is {show(bottoms[0])}; all must be equal")
        coeff = self.params.coeff
        if coeff and len(coeff) != len(bottoms):
            raise self.wrong(f"{len(coeff)} coeff for {len(bottoms)} bottoms")
        if coeff and self.params.operation != "SUM":
            raise self.wrong(f"coeff belongs to SUM, the operation is {self.params.operation}")
        return bottoms[:1]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        if p.coeff:
            bottoms = tuple(np.float32(c) * x for c, x in zip(p.coeff, bottoms))
        operation = {"PROD": np.multiply, "SUM": np.add, "MAX": np.maximum}[p.operation]
        y = operation(bottoms[0], bottoms[1])
        for x in bottoms[2:]:
            operation(y, x, out=y)
        return (y,)
