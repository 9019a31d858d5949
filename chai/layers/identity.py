"""Layers that compute nothing.

Dropout: the identity at TEST, but for networks that were trained without its factor.
Flatten: the axes from ``axis`` to ``end_axis`` become one.
Silence: reads blobs so that they are not outputs.
Split: one blob under several names.
"""

from __future__ import annotations

from ..blob import Array, Shape, count
from ..graph import Layer
from ..graph.params import MessageFields, axis_index
from ..util.lazy_numpy import np


class Dropout(Layer):
    """Caffe scales during training, so TEST computes nothing; Fast R-CNN's ``scale_train: false`` scales at TEST instead.

    Source: dropout_layer.cpp of caffe-fast-rcnn.
    """

    keeps_sign = True

    class Params(MessageFields):
        """The share of numbers that training drops, and whether it scales the others."""

        dropout_ratio: float = 0.5
        scale_train: bool = True

    @property
    def relays(self) -> bool:
        return bool(self.params.scale_train)

    @property
    def elementwise(self) -> bool:  # type: ignore[override]
        return not self.relays

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return bottoms if self.relays else (bottoms[0] * np.float32(1 - self.params.dropout_ratio),)


class Flatten(Layer):
    """The top is a view of the bottom."""

    relays = True

    class Params(MessageFields):
        """Both ends are included; negative values count from the last axis."""

        axis: int = axis_index(1)
        end_axis: int = axis_index(-1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        first, last = self.axis(self.params.axis, shape), self.axis(self.params.end_axis, shape)
        if last < first:
            raise self.wrong(f"end_axis {last} lies before axis {first}")
        return ((*shape[:first], count(shape[first : last + 1]), *shape[last + 1 :]),)


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
