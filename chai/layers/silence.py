"""Silence: reads blobs so that they are not outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Shape
from ..graph import Layer

if TYPE_CHECKING:
    from ..blob import Array


class Silence(Layer):
    """Has no top."""

    bottoms_allowed = (1, None)
    tops_allowed = (0, 0)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return ()

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return ()
