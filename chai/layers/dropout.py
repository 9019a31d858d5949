"""Dropout: the identity at TEST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph import Layer

if TYPE_CHECKING:
    from ..blob import Array


class Dropout(Layer):
    """Caffe scales during training, so nothing is left to do at TEST."""

    @property
    def relays(self) -> bool:
        return True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms
