"""Mul: the product of two blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._broadcast import PairLayer

if TYPE_CHECKING:
    from ..blob import Array


class Mul(PairLayer):
    """The smaller is repeated along the axes it lacks, as in TensorFlow, from which its networks come."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0] * bottoms[1],)
