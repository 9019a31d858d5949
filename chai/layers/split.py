"""Split: one blob under several names."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer


class Split(Layer):
    """Caffe inserts these for blobs with several readers; chai does not need them."""

    tops_allowed = (1, None)
    relays = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms * len(self.tops)
