"""Segments of a network: which engine runs which layers, without how that was chosen."""

from __future__ import annotations

from dataclasses import field

from ..graph import Layer
from ..util.lazy_dataclass import dataclass


@dataclass
class Segment:
    """Consecutive layers on one engine."""

    engine: str
    layers: list[Layer] = field(default_factory=list)


@dataclass
class Partition:
    """Segments in order; ``reasons`` has the reason for each layer on the host."""

    segments: list[Segment]
    reasons: dict[str, str]

    def engine(self, layer: str) -> str:
        """Return host or fpga; a layer fused into another one runs on the other's engine."""
        for segment in self.segments:
            if any(layer in known.origin for known in segment.layers):
                return segment.engine
        return "host"
