"""Reorg: squares of pixels become channels, in Darknet's order."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph.params import size
from ._squares import SquaresLayer, in_order


class Reorg(SquaresLayer):
    """(N, C, H, W) to (N, C * s * s, H / s, W / s); reverse: (N, C / (s * s), H * s, W * s).

    Darknet's order differs from space-to-depth: the map is reshaped to C / (s * s) channels of (H * s, W * s); pixel (i, j)
    of each square goes to the C / (s * s) channels from (i * s + j) * C / (s * s) of a blob (C, H, W), which is reshaped to
    the top. (The fork swaps height and width; its maps are square.)
    """

    message = "reorg_param"
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    @dataclass(frozen=True)
    class Params:
        """The side of the squares; reverse makes squares of channels."""

        stride: int | None = size()
        reverse: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, h, w = self.spatial(bottoms[0])
        s = self.params.stride
        if s is None:
            raise self.wrong("stride is missing")
        if c % (s * s) or (not self.params.reverse and (h % s or w % s)):
            raise self.wrong(f"{show(bottoms[0])} cannot be divided by stride {s}")
        return ((n, c // (s * s), h * s, w * s) if self.params.reverse else (n, c * s * s, h // s, w // s),)

    def squares(self, bottom: Shape) -> Array | str:
        s = self.params.stride or 1
        if not self.params.reverse:
            return "Darknet's order moves pixels from row to row and from channel to channel"
        return in_order(s, s, bottom[1] // (s * s), outer=False)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, s = bottoms[0], self.params.stride
        n, c, h, w = x.shape
        top = self.shapes(x.shape)[0]
        if self.params.reverse:
            return (x.reshape(n, s, s, -1, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(top),)
        return (x.reshape(n, c // (s * s), h, s, w, s).transpose(0, 3, 5, 1, 2, 4).reshape(top),)
