"""Bias: y = x + b, with b broadcast over some axes."""

from __future__ import annotations

from dataclasses import dataclass

from .. import kernels
from ..blob import Array, Shape
from ..graph.params import Filler, axis_index, nested, within
from ..kernels.native import NativeLayer
from ..util.lazy_numpy import np
from ._broadcast import BroadcastLayer


class Bias(BroadcastLayer):
    """With two bottoms the second one is b."""

    message = "bias_param"
    operation, operand_word = "SUM", "addend"

    @dataclass(frozen=True)
    class Params:
        """num_axes -1 means all axes from ``axis``."""

        axis: int = axis_index(1)
        num_axes: int = within(-1, 32, 1)
        filler: Filler | None = nested(Filler)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return () if len(bottoms) == 2 else (self.operand(*bottoms),)

    def fillers(self) -> tuple[Filler | None, ...]:
        return (self.params.filler,)

    def affine(self) -> tuple[Array, Array] | None:
        if not self.per_channel_only:
            return None
        return np.ones(len(self.blobs[0])), self.blobs[0].astype(np.float64)

    @property
    def bias_blob(self) -> int | None:
        return None if len(self.bottoms) == 2 else 0

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        if len(bottoms) == 2:
            return None
        return kernels.floats.scale(bottoms[0], self.covered(*bottoms), None, self.blobs[0], rectified)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        bias = bottoms[1] if len(bottoms) == 2 else self.blobs[0]
        return (x + bias.reshape(self.laid_over(x.shape, bias.shape)),)
