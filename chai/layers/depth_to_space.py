"""DepthToSpace: groups of channels become blocks of pixels."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph.params import size
from ._squares import SquaresLayer, in_squares


class DepthToSpace(SquaresLayer):
    """With block b, pixel (i, j) of a block of channel d comes from channel (i * b + j) * D + d of D * b * b.

    CRD: from channel (d * b + i) * b + j, as in PyTorch's PixelShuffle.
    """

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    @dataclass(frozen=True)
    class Params:
        """block_size is the side of a block; data_format is NHWC, NCHW or DCR, which mean the same, or CRD."""

        block_size: int | None = size()
        data_format: str = "NHWC"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, *size = self.spatial(bottoms[0])
        b, form = self.params.block_size, self.params.data_format
        if b is None:
            raise self.wrong("block_size is missing")
        if form not in ("NHWC", "NCHW", "DCR", "CRD"):
            raise self.wrong(f"data_format {form!r}; expected NHWC, NCHW, DCR or CRD")
        h, w, c = size if form == "NHWC" else (*size[1:], size[0])
        if c % (b * b):
            raise self.wrong(f"the {c} channels of {show(bottoms[0])} cannot be made into blocks of {b}x{b}")
        top = h * b, w * b, c // (b * b)
        return ((n, *top) if form == "NHWC" else (n, top[2], *top[:2]),)

    @property
    def squares(self) -> tuple[int, bool] | str:
        if self.params.data_format == "NHWC":
            return "its channels are the last axis"
        return self.params.block_size, self.params.data_format == "CRD"

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, b = bottoms[0], self.params.block_size
        if self.params.data_format == "NHWC":
            n, h, w, c = x.shape
            pixels = x.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
            return (pixels.reshape(self.shapes(x.shape)[0]),)
        return (in_squares(x, b, outer=self.params.data_format == "CRD"),)
