"""Permute: the axes in another order (SSD)."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import within
from ..util.lazy_numpy import np


class Permute(Layer):
    """0, 2, 3, 1 turns NCHW into NHWC."""

    @dataclass(frozen=True)
    class Params:
        """order[i] is the bottom's axis that becomes axis i; the other axes follow in their original order."""

        order: tuple[int, ...] = within(0, 31, ())

    def _order(self, shape: Shape) -> tuple[int, ...]:
        order = self.params.order
        if len(set(order)) != len(order) or any(a >= len(shape) for a in order):
            raise self.wrong(f"order {list(order)} does not name axes of {show(shape)} once each")
        return (*order, *(a for a in range(len(shape)) if a not in order))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (tuple(bottoms[0][a] for a in self._order(bottoms[0])),)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self._order(bottoms[0])[:1] != (0,)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.asarray(bottoms[0].transpose(self._order(bottoms[0].shape)), order="C"),)
