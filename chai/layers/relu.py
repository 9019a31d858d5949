"""ReLUs.

ReLU: max(x, 0) + negative_slope * min(x, 0).
ReLU6: min(max(x, 0) + negative_slope * min(x, 0), 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .. import kernels
from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import MessageFields
from ..kernels.native import NativeLayer
from ..util.lazy_numpy import np


class ReLUParams(MessageFields):
    """negative_slope 0 is the plain ReLU; the Synopsys fork's relu6 clamps at 6."""

    negative_slope: float = 0.0
    relu6: bool = False


class ReLU(Layer):
    Params: ClassVar[type] = ReLUParams
    new_tops = elementwise = True
    without_unit = "nothing before it on the overlay could take it in"

    @property
    def most(self) -> float | None:
        """Return the upper limit of its values, None if there is none."""
        return 6.0 if self.params.relu6 else None

    @property
    def rectifier(self) -> bool:
        return not self.params.negative_slope and self.most is None

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return not self.params.negative_slope or all(bottoms)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        if self.rectifier:
            return kernels.floats.scale(bottoms[0], range(1, 2), None, None, True)
        slope = np.full(1, self.params.negative_slope, np.float32)
        return kernels.floats.leaky(bottoms[0], slope) if self.most is None else None

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        below = np.minimum(bottoms[0], 0) if self.params.negative_slope else None
        y = np.asarray(np.maximum(bottoms[0], 0))  # a blob without axes is an array, too
        if below is not None:
            below *= np.float32(self.params.negative_slope)
            y += below
        return (y if self.most is None else np.minimum(y, np.float32(self.most), out=y),)


class ReLU6Params(MessageFields):
    """negative_slope 0 is the plain ReLU6."""

    negative_slope: float = 0.0


class ReLU6(ReLU):
    """A separate type in MobileNet-YOLO."""

    Params = ReLU6Params
    fork = "eric612/MobileNet-YOLO"
    most = 6.0
