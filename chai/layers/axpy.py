"""Axpy: a * x + y, with one factor a per image and channel."""

from __future__ import annotations

from ..blob import Array, Shape, show
from ..graph import Layer


class Axpy(Layer):
    """Bottoms: a (N, C) or (N, C, 1, 1), x and y of the same shape (N, C, ...)."""

    fork = "hujie-frank/SENet"
    bottoms_allowed = (3, 3)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        a, x, y = bottoms
        if x != y or len(x) < 2 or a not in (x[:2], (*x[:2], 1, 1)):
            raise self.wrong(
                f"{show(a)} * {show(x)} + {show(y)}: expected one factor per image and channel of two equal blobs"
            )
        return (x,)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        a, x, y = bottoms
        return (a.reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * x + y,)
