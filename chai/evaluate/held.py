"""List the blobs that the overlay stores: their formats, and the values of the first and last code."""

from __future__ import annotations

from typing import NamedTuple

from ..fixed import Format
from ..offload.schedule import DeviceStep
from ..runtime.execution import Execution
from ..util.lazy_numpy import np


class OverlayBlob(NamedTuple):
    """A blob on the overlay. ``packed``: the host writes it and Pack converts it to codes."""

    format: Format
    packed: bool

    @property
    def ends(self) -> tuple[float, float]:
        """Return the values of its first and last code."""
        codes = self.format.packed if self.packed else self.format.range
        low, high = self.format.dequantize(np.array(codes))
        return float(low), float(high)


def held_blobs(offload: Execution) -> dict[str, OverlayBlob]:
    """Return all blobs that are on the overlay at any time, by id."""
    held = {blob: OverlayBlob(format, True) for blob, format in offload.schedule.from_host.items()}
    for step in offload.schedule.steps:
        if isinstance(step, DeviceStep):
            held |= {top: OverlayBlob(offload.formats[top], False) for layer in step.layers for top in layer.tops}
    return held
