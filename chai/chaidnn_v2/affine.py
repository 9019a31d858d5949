"""Affine in CHaiDNN-v2: its BatchNorm with Scale, whose results are never negative."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..blob import Array
from ..tasks import affine
from ..util.lazy_numpy import np
from .registers import wrapped

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ..kernels.in_numpy import Kernel

RESULT = 16  # bits of the shifted product


@dataclass(frozen=True, eq=False, repr=False)
class ChaidnnAffine(affine.Affine):
    """t = (256 x - mean) g + (beta << p3), 32 bits that wrap; the code is t >> p, rounded down, 16 bits that wrap.

    In a Task the multiplier is 256 |g|, the weight the sign of g, and the bias (beta << p3) - mean g.
    """

    def define(self, *codes: Array) -> Array:
        r, signs = self.requantization, np.asarray(self.weights).astype(np.int64).reshape(-1, 1, 1)
        product = wrapped(codes[0] * (signs * r.multiplier) + self.bias.reshape(-1, 1, 1), 32)
        return np.clip(wrapped(product >> r.shift, RESULT), r.low, r.high).astype(np.int8)

    def merge_key(self) -> Hashable | None:
        return None


def kernel(task: ChaidnnAffine) -> Kernel:
    """Return its definition, image by image."""

    def run(x: Array, out: Array) -> None:
        for i in range(len(x)):
            out[i : i + 1] = task.define(x[i : i + 1])

    return run
