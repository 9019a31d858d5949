"""Plan: a network split between an overlay and the host, without how that was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..blob import Shape, batch_of, on_device
from ..fixed import Coarser, Format
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..text import number_of, visible
from .schedule import Schedule


@dataclass(eq=False)
class Segment:
    """Consecutive layers on one engine."""

    engine: str
    layers: list[Layer] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class Partition:
    """Segments in order; ``reasons`` has the reason for each layer on the host."""

    segments: list[Segment]
    reasons: dict[str, str]

    def __repr__(self) -> str:
        layers = (f"{engine} {number_of(len(self.on(engine)), 'layer')}" for engine in ("fpga", "host"))
        return f"<Partition: {', '.join(layers)}, {number_of(len(self.segments), 'segment')}>"

    def on(self, engine: str) -> list[Layer]:
        """Return the layers on one engine, in order."""
        return [layer for segment in self.segments if segment.engine == engine for layer in segment.layers]

    @property
    def engines(self) -> dict[str, str]:
        """Return the engine of each layer that runs, by its name."""
        return {layer.name: segment.engine for segment in self.segments for layer in segment.layers}

    def engine(self, layer: str) -> str:
        """Return host or fpga; a layer fused into another one runs on the other's engine."""
        return next((s.engine for s in self.segments if any(layer in each.origin for each in s.layers)), "host")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A network split between an overlay and the host, for one set of input sizes: pure data.

    ``graph``     after the passes; all keys below are its blob ids
    ``shapes``    of every blob, and of the joint blobs of the schedule
    ``formats``   of every blob on the device; empty before they are known, as is the schedule
    ``partition`` the engine of each layer, and why
    ``coarser``   the layers whose weights have coarser steps so that their sums fit the accumulator
    ``open_sums`` layers planned for the overlay without weights: with weights their sums may overflow the accumulator
    """

    graph: Graph
    shapes: Mapping[str, Shape]
    overlay: Overlay
    formats: Mapping[str, Format]
    partition: Partition
    schedule: Schedule
    open_sums: frozenset[str] = frozenset()
    coarser: Mapping[str, Coarser] = field(default_factory=dict)

    def __repr__(self) -> str:
        return visible(f"<Plan of {self.graph.name!r} for {self.overlay.name}>")

    @cached_property
    def device_shapes(self) -> dict[str, Shape]:
        """Shapes of all blobs as a device has them."""
        return {blob: on_device(shape) for blob, shape in self.shapes.items()}

    @property
    def batch(self) -> int:
        """Images per pass."""
        return batch_of(self.shapes[blob] for blob in self.graph.inputs)
