"""Layers that an overlay runs as one factor and one addend per channel: BatchNorm, Scale, BN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Array, Shape
from ..errors import ModelError
from ..fixed import Format, Quantized, Scaled, round_half_away, with_sums
from ..graph import Layer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import Window
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..tasks.target import Target


class AffineLayer(Layer):
    """Runs as a 1x1 depthwise convolution with weights of +-127 and step |factor| / 127, in both schemes."""

    can_clamp = True
    per_channel = True

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms[0]) != 4:
            return f"a blob of {len(bottoms[0])} axes"
        if self.blobs and self.affine() is None:
            return "it does more than one factor and one addend per channel"
        return self.beyond(overlay, "affine", size=max(bottoms[0][2:]), channels=bottoms[0][1], leaky=bool(self.slope))

    def lower(self, target: Target) -> list[Task]:
        from ..tasks.conv import Affine  # float networks need no Tasks

        affine = self.affine()
        assert affine is not None
        factor, addend = affine
        if not np.isfinite(factor).all():
            raise ModelError("a factor is not a finite number; it has no fixed-point code")
        source = target.formats[self.bottoms[0]]
        largest = np.abs(factor).max(initial=0)
        # no channel's step is below 1/256 of the largest, so that multipliers keep at least 8 bits
        steps = np.maximum(np.abs(factor) / 127, largest / 127 / 256) if largest else np.full(len(factor), source.step)

        def quantize(weights: Array, steps: Array, _: int) -> Quantized:
            return with_sums(weights, round_half_away(weights / steps.reshape(-1, 1, 1, 1)).astype(np.int8), steps)

        scaled, format = Scaled(factor.reshape(-1, 1, 1, 1), addend, steps), Format("Xilinx", 8, 0.0)
        codes, added, steps = target.sums(scaled, format, self.bottoms[0], self.tops[0], quantize)
        r = target.requantization(steps.reshape(-1, 1, 1), self.tops[0], self.slope, self.ceiling)
        window = Window((1, 1), (1, 1), (0, 0))
        return [Affine(self.bottoms, self.tops[0], self.origin, codes, added, window, len(codes), r, source.zero)]
