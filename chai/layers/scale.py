"""Scale: y = s * x (+ b), with s and b broadcast over some axes; usually per channel, after a BatchNorm."""

from __future__ import annotations

from dataclasses import dataclass

from .. import kernels
from ..blob import Array, Shape
from ..graph.params import Filler, axis_index, nested, within
from ..kernels.native import NativeLayer
from ..util.lazy_numpy import np
from ._broadcast import BroadcastLayer


class Scale(BroadcastLayer):
    """With two bottoms the second one is s, and the only trained blob is b."""

    message = "scale_param"
    operation, operand_word = "PROD", "factor"

    @dataclass(frozen=True)
    class Params:
        """num_axes -1 means all axes from ``axis``. Without a caffemodel s is 1 and b is 0."""

        axis: int = axis_index(1)
        num_axes: int = within(-1, 32, 1)
        filler: Filler | None = nested(Filler)
        bias_term: bool = False
        bias_filler: Filler | None = nested(Filler)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        trained = int(len(bottoms) == 1) + int(self.params.bias_term)  # of factor and addend
        return (self.operand(*bottoms),) * trained

    def fillers(self) -> tuple[Filler | None, ...]:
        factor = () if len(self.bottoms) == 2 else (self.params.filler or Filler(value=1.0),)
        return (*factor, self.params.bias_filler)

    def affine(self) -> tuple[Array, Array] | None:
        if not self.per_channel_only:
            return None
        factor = self.blobs[0].astype(np.float64)
        return factor, self.blobs[1].astype(np.float64) if self.params.bias_term else np.zeros_like(factor)

    @property
    def bias_blob(self) -> int | None:
        return 1 if self.params.bias_term else None

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        two = len(bottoms) == 2
        if two and not bottoms[1]:
            return None
        factors, addends = None if two else self.blobs[0], self.blobs[-1] if self.params.bias_term else None
        return kernels.floats.scale(bottoms[0], self.covered(*bottoms), factors, addends, rectified, two)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        scale = bottoms[1] if len(bottoms) == 2 else self.blobs[0]
        over = self.laid_over(x.shape, scale.shape)
        y = x * scale.reshape(over)
        if self.params.bias_term:
            y += self.blobs[-1].reshape(over)
        return (y,)
