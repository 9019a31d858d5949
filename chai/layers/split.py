"""Split: one blob under several names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph import Layer

if TYPE_CHECKING:
    from ..blob import Array


class Split(Layer):
    """Caffe inserts these for blobs with several readers; chai does not need them."""

    tops_allowed = (1, None)

    @property
    def relays(self) -> bool:
        return True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms * len(self.tops)
