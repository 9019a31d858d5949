"""Pad: a blob with a constant border."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import margin
from ..util.lazy_numpy import np


class Pad(Layer):
    """Every axis grows by its two paddings."""

    message = "pad_param"
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    @dataclass(frozen=True)
    class Params:
        """paddings: before and after axis 0, before and after axis 1, ..."""

        paddings: tuple[int, ...] = margin(())
        constant_values: float = 0.0

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        paddings = self.params.paddings
        return list(zip(paddings[::2], paddings[1::2]))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, paddings = bottoms[0], self.params.paddings
        if len(paddings) != 2 * len(shape):
            raise self.wrong(f"{len(paddings)} paddings for {show(shape)}; expected two for each axis")
        return (tuple(d + before + after for d, (before, after) in zip(shape, self._pairs)),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.pad(bottoms[0], self._pairs, constant_values=np.float32(self.params.constant_values)),)
