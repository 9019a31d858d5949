"""Power: (shift + scale * x) ^ power."""

from __future__ import annotations

from collections.abc import Sequence

from .. import kernels
from ..blob import Array, Shape
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np


class Power(Layer):
    new_tops = rectifies = elementwise = True

    class Params(MessageFields):
        """The defaults make it the identity."""

        power: float = 1.0
        scale: float = 1.0
        shift: float = 0.0

    @property
    def recodes(self) -> bool:  # type: ignore[override]
        return self.precision is not None and self.params == self.Params()

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return super().nonnegative(bottoms) or (min(self.params.scale, self.params.shift) >= 0 and all(bottoms))

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        from ..tasks.arithmetic import arithmetic  # float networks need no Tasks

        if self.params != self.Params(scale=-1) or len(bottoms[0]) != 4 or not arithmetic(overlay).negates:
            return super().unsupported(overlay, *bottoms)
        return self.beyond(overlay, "copy", size=max(bottoms[0][2:]), channels=bottoms[0][1])

    def lower(self, target: Arithmetic) -> list[Task]:
        return [target.negation(self)] if target.negates else super().lower(target)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        p = self.params
        if p.power != 1:
            return None
        factors, addends = (np.full(bottoms[0][1:2], number, np.float32) for number in (p.scale, p.shift))
        return kernels.floats.scale(bottoms[0], range(1, 2), factors, addends, rectified)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        y = np.float32(p.scale) * bottoms[0] + np.float32(p.shift)
        return (y if p.power == 1 else y ** np.float32(p.power),)
