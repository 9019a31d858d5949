"""The layer Where: numbers of one blob or another, place by place."""

from __future__ import annotations

from ..blob import Array, Shape, show
from ..graph import Layer
from ..util.lazy_numpy import np
from ._broadcast import broadcast


class Where(Layer):
    """Each number is that of bottom 1 where bottom 0 is not 0, else that of bottom 2; axes that are missing or 1 are repeated."""

    bottoms_allowed = (3, 3)
    new_tops = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (broadcast(self, f"{', '.join(map(show, bottoms))} do not face each other", *bottoms),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.where(bottoms[0] != 0, bottoms[1], bottoms[2]),)
