"""BatchReindex: images of a batch selected by index; they may be repeated or left out."""

from __future__ import annotations

from ..blob import Array, Shape, show
from ..graph import Layer
from ._index import rows


class BatchReindex(Layer):
    """Image i of the top is image bottom_1[i] of bottom 0; bottom 1 has one axis."""

    bottoms_allowed = (2, 2)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        x, index = bottoms
        if not x or len(index) != 1:
            raise self.wrong(f"expected a batch and numbers along one axis, found {show(x)} and {show(index)}")
        return ((*index, *x[1:]),)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0][rows(self, bottoms[1], len(bottoms[0]))],)
