"""Cost model of a segment on the overlay and of its layers on the host, from constants of the manifest.

The constants are a board's, in the section ``host`` of the manifest. Without it no cost is guessed, as a wrong guess
would move layers for no gain. The result depends on network and manifest only, not on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..blob import Shape, count, on_device
from ..codegen.compile import executable
from ..graph import Layer
from ..overlay import Host, Overlay
from .schedule import DeviceStep, Schedule


@dataclass(frozen=True)
class Cost:
    """Milliseconds per pass of a segment with its conversions, and of the same ``layers`` on the host."""

    layers: tuple[Layer, ...]
    fpga_ms: float
    host_ms: float

    def __str__(self) -> str:
        return f"{self.host_ms:.3g} ms against {self.fpga_ms:.3g} ms on the overlay"


def costs(schedule: Schedule, overlay: Overlay, shapes: Mapping[str, Shape]) -> Iterator[Cost]:
    """Yield the cost of each segment in order; nothing if the manifest has no section ``host``.

    Overlay: cycles, one call, and the Packs and Unpacks of the segment's inputs and outputs. Host: multiply-accumulates
    (elements read if there are none), and the elements written by a fused ReLU.
    """
    host, shapes = overlay.host, {blob: on_device(shape) for blob, shape in shapes.items()}
    if host is None:
        return
    for step in schedule.steps:
        if isinstance(step, DeviceStep):
            crossing = [
                4 * count(shapes[c.blob])
                for c in schedule.conversions
                if not set(c.writes).isdisjoint(step.reads) or not set(c.reads).isdisjoint(step.writes)
            ]
            chain = executable(step.work(overlay, shapes, schedule.views))
            device = chain.cycles / overlay.clock_mhz
            fpga = device + host.call_us + sum(crossing) / host.convert_bytes_per_us
            yield Cost(step.layers, fpga / 1000, sum(_on_host(layer, host, shapes) for layer in step.layers) / 1000)


def _on_host(layer: Layer, host: Host, shapes: Mapping[str, Shape]) -> float:
    """Return a layer's time on the host in microseconds."""
    bottoms, tops = (tuple(shapes[b] for b in blobs) for blobs in (layer.bottoms, layer.tops))
    macs = layer.macs(bottoms, tops)
    elements = (0 if macs else sum(map(count, bottoms))) + (sum(map(count, tops)) if layer.slope is not None else 0)
    return macs / host.macs_per_us + elements / host.elements_per_us
