"""Eltwise: product, weighted sum or maximum of blobs of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import choice
from ..kernels.elements import native_pair
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from ._chain import chain
from ._pick import picks

if TYPE_CHECKING:
    from ..tasks.eltwise import Eltwise as EltwiseTask


class Eltwise(Layer):
    """Two bottoms or more, element by element."""

    message = "eltwise_param"
    bottoms_allowed = (2, None)
    can_clamp = True
    new_tops = rectifies = True
    precision_expected = True
    pointwise = True

    @dataclass(frozen=True)
    class Params:
        """coeff applies to SUM: one per bottom, default 1."""

        operation: str = choice("PROD", "SUM", "MAX", default="SUM")
        coeff: tuple[float, ...] = ()

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

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        unit, operation = _task().limits(overlay), self.params.operation
        if unit is not None and operation not in unit.operations:
            return f"the overlay adds; it has no {operation}"
        if operation != "SUM" and self.slope:
            return f"a leaky ReLU after a {operation}"
        if unit is not None and len(bottoms) > unit.inputs and (operation == "PROD" or not picks(overlay)):
            return (
                f"{len(bottoms)} bottoms; the overlay {'multiplies' if operation == 'PROD' else 'adds'} {unit.inputs}"
            )
        if len(bottoms[0]) != 4:
            return f"a blob of {len(bottoms[0])} axes"
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
        return native_pair(self.params.operation, bottoms[0], self.params.coeff or (1.0, 1.0), rectified)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        if p.coeff:
            bottoms = tuple(np.float32(c) * x for c, x in zip(p.coeff, bottoms))
        operation = {"PROD": np.multiply, "SUM": np.add, "MAX": np.maximum}[p.operation]
        y = operation(bottoms[0], bottoms[1])
        for x in bottoms[2:]:
            y = operation(y, x)
        return (y,)


def _task() -> type[EltwiseTask]:
    from ..tasks.eltwise import Eltwise  # float networks need no Tasks

    return Eltwise
