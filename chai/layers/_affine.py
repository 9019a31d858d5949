"""Layers that an overlay runs as one factor and one addend per channel: BatchNorm, Scale, BN."""

from __future__ import annotations

from ..blob import Shape
from ..fixed import Centred
from ..graph import Arithmetic, Layer
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np


class AffineLayer(Layer):
    """Runs as a 1x1 depthwise convolution with weights of +-127 and step |factor| / 127, in both schemes."""

    can_clamp = can_bend = True
    per_channel = True

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms[0]) != 4:
            return f"a blob of {len(bottoms[0])} axes"
        if self.blobs and self.affine() is None:
            return "it does more than one factor and one addend per channel"
        return self.beyond(overlay, "affine", size=max(bottoms[0][2:]), channels=bottoms[0][1], **self.bends)

    def lower(self, target: Arithmetic) -> list[Task]:
        affine = self.affine()
        assert affine is not None
        return [target.affine(self, *affine, self.centred())]

    def centred(self) -> Centred:
        """Return what it computes with a mean that is subtracted first; the mean is 0 where it has none."""
        affine = self.affine()
        assert affine is not None
        factor, addend = (values.astype(np.float32) for values in affine)
        return Centred(np.zeros_like(factor), factor, addend)
