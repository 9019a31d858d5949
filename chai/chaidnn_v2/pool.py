"""Pool in CHaiDNN-v2: padding is 0 for a maximum too, and averages are rounded down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..blob import Array
from ..kernels.pooling import max_pool, sum_pool
from ..tasks import pool
from ..tasks.fields import Operands
from ..tasks.window import Window
from ..util.lazy_numpy import np
from .registers import wrapped

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..kernels.in_numpy import Kernel

STAGED = 2048  # pixels of the rows that the pooling unit has on chip
SUM = 24  # bits of an average's product


@dataclass(frozen=True, eq=False)
class ChaidnnPoolLimits(pool.PoolLimits):
    """``standalone``: maxima are computed by a unit of their own, not by that of convolutions."""

    standalone: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, eq=False, repr=False)
class ChaidnnPool(pool.Pool):
    """Windows are not clipped: pixels outside the image are 0. The multiplier of an average has its area, too.

    Averages are rounded down and wrap around to 8 bits. In a ``standalone`` unit some maxima are at least 0: those of the
    first column in the rows of ``first_rows``.
    """

    limit_type = ChaidnnPoolLimits
    whole_windows: ClassVar[bool] = True
    standalone: bool = field(default=False, kw_only=True)

    def define(self, *codes: Array) -> Array:
        x, r = self.extended(codes[0]).astype(np.int64), self.requantization
        (kh, kw), (sh, sw) = self.window.kernel, self.window.stride
        result = np.zeros((*x.shape[:2], *self.out), np.int64)
        for i in range(self.out[0]):
            for j in range(self.out[1]):
                part = x[:, :, i * sh : i * sh + kh, j * sw : j * sw + kw]
                result[:, :, i, j] = part.max((2, 3)) if r is None else part.sum((2, 3))
        return self.finished(result, codes[0].shape[3])

    def extended(self, x: Array) -> Array:
        """Return an image (N, C, H, W) with the zeros that windows reach."""
        pads = []
        for size, kernel, stride, pad, out in zip(x.shape[2:], *self.window[:3], self.out):
            pads.append((pad, max(0, (out - 1) * stride + kernel - pad - size)))
        return np.pad(x, ((0, 0), (0, 0), *pads))

    def finished(self, values: Array, width: int) -> Array:
        """Return the codes (int8) of maxima or sums (N, C, OH, OW) of an image that is so wide."""
        r = self.requantization
        if r is not None:
            return (wrapped(values * r.multiplier, SUM) >> r.shift).astype(np.int8)
        codes = values.astype(np.int8)
        if self.standalone:
            rows = first_rows(self.out[0], width)
            codes[:, :, rows, 0] = np.maximum(codes[:, :, rows, 0], 0)
        return codes

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        limits = memory.overlay.limits(cls.kind, ChaidnnPoolLimits)
        standalone = limits is not None and limits.standalone and not values["average"]
        return super().from_fields(values, memory, **common, standalone=standalone)


def first_rows(rows: int, width: int) -> list[int]:
    """Return the first output row of each half of a band, and a band's last row if it has an odd number of them."""
    band = max(1, STAGED // width)
    firsts = []
    for start in range(0, rows, band):
        count = min(band, rows - start)
        firsts += [start, start + count // 2] + [start + count - 1] * (count % 2)
    return sorted({*firsts})


def kernel(task: ChaidnnPool) -> Kernel:
    """Return a kernel of whole maps, one axis after the other."""
    inside = Window(task.window.kernel, task.window.stride, (0, 0))

    def run(x: Array, out: Array) -> None:
        whole = task.extended(x)
        if task.requantization is None:
            values = max_pool(whole, inside, task.out)
        else:
            values = sum_pool(whole.astype(np.int64), inside, task.out)
        np.copyto(out, task.finished(values, x.shape[3]))

    return run
