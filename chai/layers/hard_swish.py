"""HardSwish: x * min(max(x + 3, 0), 6) / 6."""

from __future__ import annotations

from ..blob import Array
from ..graph import Layer
from ..util.lazy_numpy import np


class HardSwish(Layer):
    """Element by element."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    elementwise = True

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        return (x * np.clip(x + 3, 0, 6) / 6,)
