"""List the blobs that the overlay stores: their formats, and the values of the first and last code."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..blob import Array
from ..fixed import Format
from ..offload.schedule import DeviceStep
from ..runtime.execution import Execution
from ..util.lazy_numpy import np


@dataclass(frozen=True)
class OverlayBlob:
    """A blob on the overlay: its format, and in ``ends`` the values of its first and last code.

    ``packed``: the host writes the blob and Pack converts it to codes; Pack may leave the first code unused.
    """

    format: Format
    packed: bool
    ends: tuple[float, float]


def held_blobs(offload: Execution) -> dict[str, OverlayBlob]:
    """Return all blobs that are on the overlay at any time, by id."""
    formats: dict[str, OverlayBlob] = {}
    for blob, format in offload.schedule.from_host.items():
        formats[blob] = OverlayBlob(format, True, _ends(format, format.quantize(np.array([-inf, inf]))))
    for step in offload.schedule.steps:
        for blob in (top for layer in step.layers for top in layer.tops if isinstance(step, DeviceStep)):
            format = offload.formats[blob]
            formats[blob] = OverlayBlob(format, False, _ends(format, np.array(format.range)))
    return formats


def _ends(format: Format, codes: Array) -> tuple[float, float]:
    low, high = format.dequantize(codes)
    return float(low), float(high)
