"""Number of images that the formats of a network without precision_param come from, and the margin where these are few.

The one place for both: docs/quantize.md has the measurements. Other images reach larger values than a few have, and what
lies beyond a format saturates; a wider format has coarser steps. So a margin depends on the images, and on what a step costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..text import number_of

IMAGES = 8  # that formats come from, where so many are given
_MARGINS = {  # of 8 bits by scheme: images at least -> factor of their largest values
    "Xilinx": {1: 2.0, 2: 1.5, 8: 1.25, 32: 1.0},
    "DynamicFixed": {1: 2.0, 2: 1.5, 8: 1.0},  # rounding up to a power of two is a margin, too
}
_NARROW = {1: 1.5, 2: 1.25, 8: 1.0}  # a code of 6 bits has a quarter of the steps
CURE = "--calibration FOLDER or chai quantize"


class Basis(NamedTuple):
    """Basis of measured formats: the number of images, bits and scheme."""

    images: int
    bits: int
    scheme: str

    @property
    def margin(self) -> float:
        """Return the factor of the largest values that the formats reach up to."""
        margins = _NARROW if self.bits == 6 else _MARGINS[self.scheme]
        return min(margin for least, margin in margins.items() if least <= max(self.images, 1))

    @property
    def advice(self) -> str:
        """Return how to get better formats than from so few images; "" from enough."""
        return "" if self.images >= IMAGES else f"{IMAGES} or more are better: net.calibrate(images), {CURE}"

    def widened(self, ranges: Mapping[str, float]) -> dict[str, float]:
        """Return the largest magnitudes, by blob, with the margin."""
        return {blob: largest * self.margin for blob, largest in ranges.items()}

    @property
    def source(self) -> str:
        """Return the images and the margin in words."""
        return number_of(self.images, "image") + (f" times {self.margin:g}" if self.margin > 1 else "")

    def __str__(self) -> str:
        return f"{self.bits}-bit {self.scheme} formats from the largest values of {self.source}"
