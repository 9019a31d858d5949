"""Flatten: the axes from ``axis`` to ``end_axis`` become one."""

from __future__ import annotations

from ..blob import Array, Shape, count
from ..graph import Layer
from ..graph.params import MessageFields, axis_index


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

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0].reshape(self.shapes(bottoms[0].shape)[0]),)
