"""Clip: x limited to the range from min to max."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..util.lazy_numpy import np


class Clip(Layer):
    """Element by element; if max < min, the result is min."""

    message = "clip_param"
    elementwise = True

    @dataclass(frozen=True)
    class Params:
        """Both limits are required."""

        min: float | None = None
        max: float | None = None

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.min is None or self.params.max is None:
            raise self.wrong("min or max is missing")
        return bottoms

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        low, high = np.float32(self.params.min), np.float32(self.params.max)
        return (np.maximum(np.minimum(bottoms[0], high), low),)
