"""Model what each segment costs on the overlay, and what its layers would cost on the board's processor.

The numbers are a host model's. Costs depend on the network, the manifest and the model, not on the machine that plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..blob import Shape, count
from ..codegen.memory_map import HostBlobs
from ..graph import Layer
from ..overlay import Overlay
from ..overlay.host_model import FLUSH, SEGMENT, UNFOLDED, HostModel, Span
from .counts import Counts, conversion_counts, flush_counts, layer_counts, layer_kind
from .schedule import Pack, Schedule


@dataclass(frozen=True)
class SegmentCost:
    """Modelled milliseconds per pass, least and most.

    ``work``     of the overlay
    ``around``   of the processor for the overlay: its start, and the Packs and Unpacks at the segment's edges
    ``instead``  of the processor if it ran the same ``layers``
    """

    layers: tuple[Layer, ...]
    work: float
    around: Span
    instead: Span

    @property
    def fpga(self) -> Span:
        """Return what the segment takes with all that is around it."""
        return Span(self.work + self.around.least, self.work + self.around.most)

    @property
    def pays(self) -> bool:
        """Return whether the overlay is the better place: cheaper by the least times of both, or by the most."""
        return self.fpga.least <= self.instead.least or self.fpga.most <= self.instead.most

    def __str__(self) -> str:
        return f"{self.instead} ms against {self.fpga} ms on the overlay"


def costs(
    schedule: Schedule, chains: Iterable[HostBlobs], overlay: Overlay, shapes: Mapping[str, Shape], model: HostModel
) -> Iterator[SegmentCost]:
    """Yield the cost of each segment in order; ``chains`` and ``shapes`` are segments and blobs as the overlay has them."""
    for step, chain in zip(schedule.segments, chains):
        around = model.amount("driver", SEGMENT, {"call": 1})
        around += model.amount("driver", FLUSH, flush_counts(chain, overlay))
        for conversion in schedule.conversions:
            if set(conversion.writes).isdisjoint(step.reads) and set(conversion.reads).isdisjoint(step.writes):
                continue  # it is not at the segment's edges
            counts = conversion_counts(shapes[conversion.blob], shapes[conversion.result], overlay.layout)
            kind = UNFOLDED if isinstance(conversion, Pack) and conversion.unfold is not None else conversion.type
            around += model.amount("conversions", kind, counts)
        instead = sum(_on_host(layer, model, shapes) for layer in step.layers)
        work = chain.cycles / overlay.clock_mhz / 1000
        yield SegmentCost(step.layers, work, model.ms(around), model.ms(instead))


def _on_host(layer: Layer, model: HostModel, shapes: Mapping[str, Shape]) -> float:
    """Return what a layer takes on the processor, with a ReLU that it clamps for."""
    amount = model.amount("layers", layer_kind(layer, shapes), layer_counts(layer, shapes))
    if layer.slope is not None or layer.slopes is not None:
        clamped: Counts = {"call": 1, "element": sum(count(shapes[blob]) for blob in layer.tops)}
        amount += model.amount("layers", "ReLU", clamped)
    return amount
