"""Dropout: the identity at TEST."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer


class Dropout(Layer):
    """Caffe scales during training, so nothing is left to do at TEST."""

    relays = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms
