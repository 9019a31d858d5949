"""UpsampleDarknet: every pixel repeated as a square."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import size
from ._repeat import RepeatLayer


class UpsampleDarknet(RepeatLayer):
    """(N, C, H, W) to (N, C, H * stride, W * stride)."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    keeps_sign = True

    @dataclass(frozen=True)
    class Params:
        """The side of the square."""

        stride: int = size(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, h, w = self.spatial(bottoms[0])
        return ((n, c, h * self.params.stride, w * self.params.stride),)

    def repeats(self, bottom: Shape) -> tuple[int, int]:
        return self.params.stride, self.params.stride

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0].repeat(self.params.stride, 2).repeat(self.params.stride, 3),)
