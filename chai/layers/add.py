"""Add: the sum of two blobs."""

from __future__ import annotations

from ..blob import Array
from ._broadcast import PairLayer


class Add(PairLayer):
    """The smaller blob is repeated along missing axes, as in TensorFlow, the origin of networks with this type."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    pointwise = True
    operation = "SUM"

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0] + bottoms[1],)
