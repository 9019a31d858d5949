"""Affine: one multiplication and one addition per element, of a BatchNorm or a Scale that is not folded into a convolution.

It is a 1x1 depthwise Conv with weights of +-largest.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..blob import Shape
from ..overlay import Overlay, TaskLimits
from .conv import Conv
from .window import POINT

if TYPE_CHECKING:
    from .probe import Maker, Probe


@dataclass(frozen=True, eq=False)
class AffineLimits(TaskLimits):
    """Limits of one multiplication and one addition per element."""

    leaky: bool
    prelu: bool = field(default=False, kw_only=True)


class Affine(Conv):
    """One multiplication and one addition per element: a BatchNorm or Scale that could not be folded."""

    kind = "affine"
    limit_type = AffineLimits

    def excluded(self, overlay: Overlay, shapes: Mapping[str, Shape]) -> str | None:
        if not self.is_depthwise or self.window != POINT:
            return "it is more than one multiplication and one addition per element"
        return super().excluded(overlay, shapes)

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return self.bends()

    def merge_key(self) -> Hashable | None:
        return None

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        channels = maker.step + 3
        for unsigned in ("", *maker.unsigned):
            yield cls.probe(maker, "affine", (channels, channels), POINT, channels, unsigned=unsigned)
