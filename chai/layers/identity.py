"""Layers that compute nothing.

Dropout: the identity at TEST.
Silence: reads blobs so that they are not outputs.
Split: one blob under several names.
"""

from __future__ import annotations

from ..blob import Array, Shape
from ..graph import Layer


class Dropout(Layer):
    """Caffe scales during training, so nothing is left to do at TEST."""

    relays = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms


class Silence(Layer):
    """Has no top."""

    bottoms_allowed = (1, None)
    tops_allowed = (0, 0)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return ()

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return ()


class Split(Layer):
    """Caffe inserts these for blobs with several readers; chai does not need them."""

    tops_allowed = (1, None)
    relays = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms * len(self.tops)
