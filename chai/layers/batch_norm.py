"""Normalisation of channels by trained statistics.

BatchNorm: y = (x - mean) / sqrt(variance + eps) per channel.
BN: a BatchNorm with its scale and shift in one layer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import kernels
from ..blob import Array, Shape, show
from ..fixed import Centred
from ..graph import Arithmetic, Layer
from ..graph.params import EXACT, Filler, MessageFields, choice, nested, within
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.tiling import beyond_strips
from ..tasks.window import POINT
from ..text import number_of
from ..util.lazy_numpy import np


def affine_refused(layer: Layer, overlay: Overlay, bottom: Shape, **bends: bool) -> str | None:
    """Return why the overlay cannot run one factor and one addend per channel of a blob of this shape; None if it can."""
    channels, size = bottom[1], max(bottom[2:])
    reason = layer.beyond(overlay, "affine", size=size, channels=channels, **bends)
    return reason or beyond_strips(overlay, POINT, (channels, 1, 1, 1), channels, bottom)


def of_batch(x: Array) -> tuple[Array, Array]:
    """Return mean and variance of each channel, with the axes of x."""
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    mean = x.mean(axes, keepdims=True, dtype=np.float32)
    return mean, ((x - mean) ** 2).mean(axes, keepdims=True, dtype=np.float32)


class AffineLayer(Layer):
    """Runs as a 1x1 depthwise convolution with weights of +-127 and step |factor| / 127, in both schemes."""

    can_clamp = can_bend = True
    per_channel = True

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms[0]) != 4:
            return f"a blob of {number_of(len(bottoms[0]), 'axis')}"
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


class BatchNorm(AffineLayer):
    """Blobs: sum of means (C,), sum of variances (C,), and their common divisor (1,). A divisor of 0 makes both 0.

    With use_global_stats: false the batch's own mean and variance are used instead. NVCaffe's scale_bias, or a filler, adds two
    blobs (C,): a factor, by which the result is multiplied, and an addend.
    """

    new_tops = rectifies = True

    class Params(MessageFields):
        """use_global_stats defaults to true at TEST.

        With the Synopsys fork's add_eps_before_sqrt: false, the divisor is sqrt(variance) + eps.
        """

        use_global_stats: bool | None = None
        eps: float = within(0, 1e30, 1e-5)
        add_eps_before_sqrt: bool = True
        scale_bias: bool = False
        scale_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)

    @property
    def scaled(self) -> bool:
        """Return whether it has a factor and an addend."""
        p = self.params
        return p.scale_bias or p.scale_filler is not None or p.bias_filler is not None

    @property
    def bias_blob(self) -> int:
        return 4 if self.scaled else 0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if not bottoms[0]:
            raise self.wrong("a scalar has no channels")
        return bottoms

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        channels = bottoms[0][1] if len(bottoms[0]) > 1 else 1
        return (channels,), (channels,), (1,), *((channels,),) * (2 * self.scaled)

    def fillers(self) -> tuple[Filler | None, ...]:
        p, one = self.params, Filler(value=1.0)
        return None, one, one, *((p.scale_filler or one, p.bias_filler) if self.scaled else ())

    def statistics(self) -> tuple[Array, Array]:
        """Return mean and variance per channel, float32 (C,)."""
        total, squares, divisor = self.blobs[:3]
        factor = np.float32(0 if divisor[0] == 0 else 1 / divisor[0])
        return total * factor, squares * factor

    def _deviation(self, variance: Array, eps: Any) -> Array:
        deviation: Array = np.sqrt(variance + eps) if self.params.add_eps_before_sqrt else np.sqrt(variance) + eps
        return deviation

    def affine(self) -> tuple[Array, Array] | None:
        if self.params.use_global_stats is False:
            return None
        mean, variance = (v.astype(np.float64) for v in self.statistics())
        factor = 1 / self._deviation(variance, self.params.eps)
        if not self.scaled:
            return factor, -mean * factor
        factor = factor * self.blobs[3]
        return factor, self.blobs[4] - mean * factor

    def quotients(self) -> tuple[Array, Array]:
        """Return ``statistics`` by division, as CHaiDNN computes them."""
        total, squares, divisor = self.blobs[:3]
        return (total / divisor, squares / divisor) if divisor[0] else (np.zeros_like(total), np.zeros_like(squares))

    def centred(self) -> Centred:
        mean, variance = self.quotients()
        factor = np.float32(1) / self._deviation(variance, np.float32(self.params.eps))
        return Centred(mean, factor * self.blobs[3], self.blobs[4]) if self.scaled else Centred(mean, factor, 0 * mean)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.params.use_global_stats is False

    def bias_change(self, moved: Array) -> Array:
        """Return the change of the addend, else of the stored mean, which is multiplied by the third blob and subtracted."""
        if self.scaled:
            return moved
        affine = self.affine()
        assert affine is not None
        return -moved / affine[0] * float(self.blobs[2].reshape(-1)[0])

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        p = self.params
        if p.use_global_stats is False or not p.add_eps_before_sqrt or len(bottoms[0]) < 2 or self.scaled:
            return None
        return kernels.floats.batch_norm(bottoms[0], self.blobs, p.eps, rectified)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        lead = (-1, *(1,) * (x.ndim - 2))
        if self.params.use_global_stats is False:
            mean, variance = of_batch(x)
        else:
            mean, variance = (each.reshape(lead) for each in self.statistics())
        y = x - mean
        y *= 1 / self._deviation(variance, np.float32(self.params.eps))
        if self.scaled:
            y *= self.blobs[3].reshape(lead)
            y += self.blobs[4].reshape(lead)
        return (y,)


class BN(AffineLayer):
    """Two forks have a type of this name. All blobs are (1, C, 1, 1).

    SegNet (also ENet): scale and shift. INFERENCE: y = scale * x + shift; LEARN: x is first normalised to
    (x - mean) / sqrt(variance + 1e-9) with the batch's own mean and variance.
    PSPNet, recognised by slope_filler, bias_filler, momentum or frozen: slope, bias, mean and variance;
    y = slope * (x - mean) / sqrt(variance + eps) + bias.
    """

    fork = "alexgkendall/caffe-segnet; hszhao/PSPNet"

    class Params(MessageFields):
        """bn_mode, scale_filler and shift_filler are SegNet's, the others PSPNet's."""

        scale_filler: Filler | None = nested(Filler)
        shift_filler: Filler | None = nested(Filler)
        bn_mode: str = choice("LEARN", "INFERENCE", default="LEARN")
        slope_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)
        momentum: float | None = None
        eps: float = within(0, 1e30, 1e-5)
        frozen: bool = False

    @property
    def _stored(self) -> bool:
        """Return whether mean and variance are among the blobs."""
        p = self.params
        return p.frozen or any(f is not None for f in (p.slope_filler, p.bias_filler, p.momentum))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if len(bottoms[0]) < 2:
            raise self.wrong(f"expected a blob with channels, found {show(bottoms[0])}")
        return bottoms

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return ((1, bottoms[0][1], 1, 1),) * (4 if self._stored else 2)

    def fillers(self) -> tuple[Filler | None, ...]:
        p = self.params
        stored = p.slope_filler, p.bias_filler, None, Filler(value=1.0)
        fillers = stored if self._stored else (p.scale_filler, p.shift_filler)
        return tuple(replace(f or Filler(), type=EXACT) for f in fillers)  # vectors, though they have four axes

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return not self._stored and self.params.bn_mode == "LEARN"

    def affine(self) -> tuple[Array, Array] | None:
        if self.mixes_images(()):
            return None
        scale, shift, *statistics = (b.astype(np.float64).reshape(-1) for b in self.blobs)
        if statistics:
            mean, variance = statistics
            scale = scale / np.sqrt(variance + self.params.eps)
            shift = shift - mean * scale
        return scale, shift

    def centred(self) -> Centred:
        scale, shift, *statistics = (blob.reshape(-1) for blob in self.blobs)
        if not statistics:
            return Centred(np.zeros_like(scale), scale, shift)
        mean, variance = statistics
        return Centred(mean, scale / np.sqrt(variance + np.float32(self.params.eps)), shift)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        scale, shift, *statistics = (blob.reshape(-1, *(1 for _ in x.shape[2:])) for blob in self.blobs)
        if statistics:
            (mean, variance), eps = statistics, self.params.eps
        elif self.params.bn_mode == "INFERENCE":
            return (scale * x + shift,)
        else:
            (mean, variance), eps = of_batch(x), 1e-9
        return (scale * ((x - mean) / np.sqrt(variance + np.float32(eps))) + shift,)
