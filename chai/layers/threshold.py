"""Threshold: 1 where x > threshold, else 0."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class Threshold(Layer):
    """Element by element."""

    message = "threshold_param"
    elementwise = True

    @dataclass(frozen=True)
    class Params:
        """A value equal to threshold gives 0."""

        threshold: float = 0.0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return ((bottoms[0] > np.float32(self.params.threshold)).astype(np.float32),)
