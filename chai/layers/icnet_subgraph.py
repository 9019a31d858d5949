"""ICNetSubgraph: ICNet's pyramid pooling as one layer."""

from __future__ import annotations

from ..blob import Array, Shape
from ..graph import Layer
from .interp import resize
from .pooling import Pooling

# kernel and stride (height, width) for ICNet's map of 33x65
LEVELS = (
    ((33, 65), (33, 65)),
    ((17, 33), (16, 32)),
    ((13, 25), (10, 20)),
    ((8, 15), (5, 10)),
)


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
