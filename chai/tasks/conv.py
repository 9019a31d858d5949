"""Conv: acc = sum of qx * qw + qb, requantised per output channel.

Also the Task of a BatchNorm or Scale on its own (Affine): a 1x1 depthwise Conv whose weights are +-largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fixed import Requantization, requantize
from ..util.lazy_numpy import np
from . import Task
from .window import Window

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..overlay.weights import Packed


@dataclass(frozen=True, eq=False)
class Conv(Task):
    """``weights`` int8 (M, C/group, kh, kw), ``bias`` int64 (M,), multipliers of ``requantization`` (M, 1, 1).

    Packed weights lie where an overlay reads them; ``np.asarray`` makes an array of them.
    """

    kind = "conv"
    weights: Array | Packed
    bias: Array
    window: Window
    group: int
    requantization: Requantization

    def define(self, *codes: Array) -> Array:
        x = codes[0].astype(np.int64)
        n, c, h, w = x.shape
        m, cg = self.weights.shape[:2]
        (ph, pw), (sh, sw), (dh, dw) = self.window.pad, self.window.stride, self.window.dilation
        oh, ow = self.window.sizes((h, w))
        padded = np.zeros((n, c, h + 2 * ph, w + 2 * pw), np.int64)
        padded[:, :, ph : ph + h, pw : pw + w] = x
        accumulator = np.zeros((n, self.group, m // self.group, oh * ow), np.int64)
        weights = (
            np.asarray(self.weights).astype(np.int64).reshape(self.group, m // self.group, cg, *self.window.kernel)
        )
        for i in range(self.window.kernel[0]):
            for j in range(self.window.kernel[1]):
                rows = slice(i * dh, i * dh + sh * (oh - 1) + 1, sh)
                tap = padded[:, :, rows, j * dw : j * dw + sw * (ow - 1) + 1 : sw]
                accumulator += np.matmul(weights[..., i, j], tap.reshape(n, self.group, cg, oh * ow))
        accumulator = accumulator.reshape(n, m, oh, ow) + self.bias.reshape(-1, 1, 1)
        return requantize(accumulator, self.requantization)

    def macs(self, *shapes: Shape) -> int:
        oh, ow = self.window.sizes(shapes[0][2:])
        return int(shapes[0][0] * self.weights.size * oh * ow)


class Affine(Conv):
    """One multiplication and one addition per element: a BatchNorm or Scale that nothing could take in."""

    kind = "affine"
