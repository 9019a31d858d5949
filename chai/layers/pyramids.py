"""Pyramids of poolings.

ICNetSubgraph: ICNet's pyramid pooling as one layer.
SPP: poolings of the map into 1, 2x2, 4x4, ... parts, concatenated.
"""

from __future__ import annotations

from ..blob import Array, Shape, count
from ..graph import Layer
from ..graph.params import MessageFields, choice, within
from ..util.lazy_numpy import np
from .pooling import Pooling
from .resize import resize

# kernel and stride (height, width) for ICNet's map of 33x65
LEVELS = ((33, 65), (33, 65)), ((17, 33), (16, 32)), ((13, 25), (10, 20)), ((8, 15), (5, 10))


class ICNetSubgraph(Layer):
    """x plus four average poolings of it with these fixed windows, each resized bilinearly to the size of x."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    def _poolings(self) -> list[Pooling]:
        windows = [
            Pooling.Params("AVE", kernel_h=kh, kernel_w=kw, stride_h=sh, stride_w=sw) for (kh, kw), (sh, sw) in LEVELS
        ]
        return [Pooling(self.name, self.bottoms, self.tops, window, type=self.type) for window in windows]

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        for pooling in self._poolings():
            pooling.shapes(*bottoms)
        return bottoms

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        y = x = bottoms[0]
        for pooling in self._poolings():
            y = y + resize(pooling.forward(x)[0], x.shape[2:])
        return (y,)


class SPP(Layer):
    """Pooling i has kernel and stride size / 2^i, rounded up, and half the excess as padding.

    The top is the map of a single pooling, or (N, C * all their pixels) for several.
    """

    class Params(MessageFields):
        pyramid_height: int = within(0, 16, 0)
        pool: str = choice("MAX", "AVE", "STOCHASTIC", default="MAX")

    def _poolings(self, shape: Shape) -> list[Pooling]:
        poolings = []
        for level in range(self.params.pyramid_height):
            kernel = [-(-size >> level) for size in shape[2:]]
            pad = [((k << level) - size + 1) // 2 for k, size in zip(kernel, shape[2:])]
            (kh, kw), (ph, pw) = kernel, pad
            params = Pooling.Params(
                self.params.pool, pad_h=ph, pad_w=pw, kernel_h=kh, kernel_w=kw, stride_h=kh, stride_w=kw
            )
            poolings.append(Pooling(self.name, self.bottoms, self.tops, params, type=self.type))
        return poolings

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if not self.params.pyramid_height:
            raise self.wrong("pyramid_height is missing")
        parts = [p.shapes(*bottoms)[0] for p in self._poolings(self.spatial(bottoms[0]))]
        return (parts[0],) if len(parts) == 1 else ((bottoms[0][0], sum(count(part[1:]) for part in parts)),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        parts = [p.forward(*bottoms)[0] for p in self._poolings(bottoms[0].shape)]
        if len(parts) > 1:
            parts = [np.concatenate([p.reshape(len(p), count(p.shape[1:])) for p in parts], 1)]
        return tuple(parts)
