"""Tile: a blob repeated along an axis."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import axis_index, within
from ..util.lazy_numpy import np


class Tile(Layer):
    """Two tiles of 1 2 are 1 2 1 2."""

    @dataclass(frozen=True)
    class Params:
        """tiles is required."""

        axis: int = axis_index(1)
        tiles: int | None = within(1, 2**31 - 1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, tiles = bottoms[0], self.params.tiles
        along = self.axis(self.params.axis, shape)
        if tiles is None:
            raise self.wrong("tiles is missing")
        return ((*shape[:along], shape[along] * tiles, *shape[along + 1 :]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        times = [1] * x.ndim
        times[self.axis(self.params.axis, x.shape)] = self.params.tiles
        return (np.tile(x, times),)
