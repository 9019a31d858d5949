"""Layers that an overlay runs as one factor and one addend per channel: BatchNorm, Scale, BN."""

from __future__ import annotations

from ..blob import Shape
from ..fixed import Centred
from ..graph import Arithmetic, Layer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.tiling import beyond_strips
from ..tasks.window import POINT
from ..util.lazy_numpy import np


def affine_refused(layer: Layer, overlay: Overlay, bottom: Shape, **bends: bool) -> str | None:
    """Return why the overlay cannot run one factor and one addend per channel of a blob of this shape; None if it can."""
    channels, size = bottom[1], max(bottom[2:])
    reason = layer.beyond(overlay, "affine", size=size, channels=channels, **bends)
    return reason or beyond_strips(overlay, POINT, (channels, 1, 1, 1), channels, bottom)


class AffineLayer(Layer):
    """Runs as a 1x1 depthwise convolution with weights of +-127 and step |factor| / 127, in both schemes."""

    can_clamp = can_bend = True
    per_channel = True

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms[0]) != 4:
            return f"a blob of {len(bottoms[0])} axes"
        if self.blobs and self.affine() is None:
            return "it does more than one factor and one addend per channel"
        return affine_refused(self, overlay, bottoms[0], **self.bends)

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
