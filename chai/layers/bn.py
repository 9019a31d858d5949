"""BN: a BatchNorm with its scale and shift in one layer."""

from __future__ import annotations

from dataclasses import replace

from ..blob import Array, Shape, show
from ..fixed import Centred
from ..graph.fillers import EXACT
from ..graph.params import Filler, MessageFields, choice, nested, within
from ..util.lazy_numpy import np
from .batch_norm import AffineLayer


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
            others = tuple(axis for axis in range(x.ndim) if axis != 1)
            mean = x.mean(others, keepdims=True, dtype=np.float32)
            variance, eps = ((x - mean) ** 2).mean(others, keepdims=True, dtype=np.float32), 1e-9
        return (scale * ((x - mean) / np.sqrt(variance + np.float32(eps))) + shift,)
