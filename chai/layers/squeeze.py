"""Squeeze: a blob without axes of length 1."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import within


class Squeeze(Layer):
    """The top is a view of the bottom."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    @dataclass(frozen=True)
    class Params:
        """The axes to remove; all axes of length 1 if none are given."""

        axis: tuple[int, ...] = within(-32, 31, ())

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        gone = {self.axis(a, shape) for a in self.params.axis} or {i for i, d in enumerate(shape) if d == 1}
        for i in gone:
            if shape[i] != 1:
                raise self.wrong(f"axis {i} of {show(shape)} is {shape[i]} long; only axes of length 1 can go")
        return (tuple(d for i, d in enumerate(shape) if i not in gone),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0].reshape(self.shapes(bottoms[0].shape)[0]),)
