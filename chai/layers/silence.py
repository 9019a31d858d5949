"""Silence: reads blobs so that they are not outputs."""

from __future__ import annotations

from ..blob import Array, Shape
from ..graph import Layer


class Silence(Layer):
    """Has no top."""

    bottoms_allowed = (1, None)
    tops_allowed = (0, 0)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return ()

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return ()
