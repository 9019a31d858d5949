"""Layers that repeat each pixel as a rectangle: nearest-neighbour upsampling by whole factors."""

from __future__ import annotations

from .. import tasks
from ..blob import Shape
from ..graph import Arithmetic, Layer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.upsample import too_many_rows


class RepeatLayer(Layer):
    """The subclass says by which factors, if its parameters and the bottom's shape are such."""

    follows = True

    def repeats(self, bottom: Shape) -> tuple[int, int] | str:
        """Return rows and columns of the top for one of the bottom (N, C, H, W); or why it does more than repeat pixels."""
        raise NotImplementedError(self.type)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if tasks.find("upsample").limits(overlay) is None:
            return self.without_unit
        if len(bottoms) != 1 or len(bottoms[0]) != 4:
            return f"{len(bottoms)} bottoms" if len(bottoms) != 1 else f"a blob of {len(bottoms[0])} axes"
        factors = self.repeats(bottoms[0])
        if isinstance(factors, str):
            return factors
        return upsample_refused(self, overlay, bottoms[0], factors)

    def lower(self, target: Arithmetic) -> list[Task]:
        factors = self.repeats(target.shapes[self.bottoms[0]])
        assert not isinstance(factors, str)
        return [target.upsample(self, self.tops[0], factors)]


def upsample_refused(layer: Layer, overlay: Overlay, bottom: Shape, factors: tuple[int, int]) -> str | None:
    """Return why the overlay cannot make rectangles of a bottom's pixels, or put zeros around them; None if it can."""
    _, channels, height, width = bottom
    sizes = {"factor": max(factors), "size": max(height * factors[0], width * factors[1]), "channels": channels}
    return layer.beyond(overlay, "upsample", **sizes) or too_many_rows(overlay, channels, height)
