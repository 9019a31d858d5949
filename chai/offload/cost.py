"""Model what each segment costs on the overlay, and what its layers would cost on the board's processor.

The numbers are a host model's. Costs depend on the network, the manifest and the model, not on the machine that plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from ..blob import Shape, count, on_device
from ..codegen.memory_map import READ, WRITTEN, HostBlobs
from ..graph import Layer
from ..kernels.floats import in_tiles
from ..overlay import Layout, Overlay
from ..overlay.host_model import FLUSH, SEGMENT, UNFOLDED, HostModel, Span
from ..overlay.layout import planes
from ..tasks.window import Filtering
from .schedule import Pack, Schedule

Counts = dict[str, float]  # sizes that determine what a step costs: a host model has a number for each


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


def conversion_counts(source: Shape, words: Shape, layout: Layout) -> Counts:
    """Return the sizes of a conversion between a blob of the host and ``words``, the blob as the overlay has it."""
    n, c, *size = on_device(words)
    every = n * planes(c, layout)
    return {
        "call": 1,
        "plane": every,
        "row": every * prod(size[:-1]),
        "word": every * prod(size),
        "element": count(source),
    }


def layer_kind(layer: Layer, shapes: Mapping[str, Shape]) -> str:
    """Return the kind of a host model's numbers for a layer: its type; of a convolution by how the host computes it."""
    if layer.convolution is None:
        return layer.type
    window, group = layer.convolution
    source, target = shapes[layer.bottoms[0]], shapes[layer.tops[0]]
    weights = target[1], source[1] // group, *window[0]
    if weights[1] == 1 and group > 1:
        return "Convolution depthwise"
    if in_tiles(Filtering(window, group, False), target, weights):
        return "Convolution in tiles"
    return "Convolution 1x1" if prod(window[0]) == 1 else "Convolution"


def layer_counts(layer: Layer, shapes: Mapping[str, Shape]) -> Counts:
    """Return the sizes of a layer on the host."""
    bottoms, tops = ([shapes[blob] for blob in blobs] for blobs in (layer.bottoms, layer.tops))
    read, written = (sum(map(count, shapes)) for shapes in ([] if layer.constant else bottoms, tops))
    macs = layer.macs(tuple(bottoms), tuple(tops))
    if not macs and layer.engine == "custom":
        images = bottoms[0][0] if bottoms and bottoms[0] else 1
        macs = images * sum(blob.size for blob in layer.blobs)  # as many as its weights, for each image
    counts: Counts = {
        "call": 1,
        "blob": len(bottoms) + len(tops),
        "row": rows(tops[0]) if tops else 0,
        "element": max(read, written),
        "mac": macs,
    }
    if layer.convolution is not None:
        counts["tap"] = macs * layer.convolution[1] / tops[0][1]
    return counts


def rows(shape: Shape) -> int:
    """Return the number of rows of a blob; one of a single pixel is a row of channels."""
    while shape and shape[-1] == 1:
        shape = shape[:-1]
    return prod(shape[:-1])


def flush_counts(chain: Any, overlay: Overlay) -> Counts:
    """Return the sizes of what goes through the caches for a compiled segment; none where memory is coherent."""
    if overlay.coherent:
        return {}
    regions = [region for crossed in (WRITTEN, READ) for region in chain.sizes if region in crossed]
    return {"call": len(regions), "element": sum(chain.sizes[region] for region in regions)}
