"""Pool: the largest code of a window, or the requantised sum of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fixed import Requantization, requantize
from ..util.lazy_numpy import np
from . import Task
from .window import Window

if TYPE_CHECKING:
    from ..blob import Array


@dataclass(frozen=True, eq=False)
class Pool(Task):
    """Caffe's geometry: the window is clipped to the image, padding never wins a maximum.

    ``out``             height and width of the output (Caffe rounds up)
    ``requantization``  None for MAX; for AVE multipliers (OH, OW), one per window, since windows differ in area
    """

    kind = "pool"
    window: Window
    out: tuple[int, int]
    requantization: Requantization | None

    def define(self, *codes: Array) -> Array:
        x = codes[0].astype(np.int64)
        n, c, h, w = x.shape
        result = np.zeros((n, c, *self.out), np.int64)
        for i in range(self.out[0]):
            top = i * self.window.stride[0] - self.window.pad[0]
            rows = slice(max(top, 0), min(top + self.window.kernel[0], h))
            for j in range(self.out[1]):
                left = j * self.window.stride[1] - self.window.pad[1]
                part = x[:, :, rows, max(left, 0) : min(left + self.window.kernel[1], w)]
                result[:, :, i, j] = part.max((2, 3), initial=-128) if self.requantization is None else part.sum((2, 3))
        return result.astype(np.int8) if self.requantization is None else requantize(result, self.requantization)
