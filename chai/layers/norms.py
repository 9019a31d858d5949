"""x minus its mean, or not, divided by its deviation or norm.

LRN: y = x / (k + alpha * mean of squares nearby) ^ beta, over neighbouring channels or pixels.
LayerNorm: x minus its mean, divided by its standard deviation, over the last axes.
MVN: x minus its mean, divided by its standard deviation.
Normalize: x / sqrt(sum of squares + eps), times a trained scale (SSD).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import kernels, tasks
from ..blob import Array, Shape, show
from ..fixed import Format
from ..graph import Arithmetic, Layer
from ..graph.params import SIZE, Filler, MessageFields, axis_index, choice, nested, within
from ..kernels import pooling
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.window import Window
from ..util.lazy_numpy import np

BAND = 1 << 15  # elements at a time: five arrays of this size fit into the cache


class LRN(Layer):
    """ACROSS_CHANNELS divides the sum of squares by local_size.

    WITHIN_CHANNEL takes Caffe's average pool of the squares (zero padding, clipped windows) and ignores k, which is 1.
    """

    own_format = keeps_sign = True
    error_sensitive = True  # large values are compressed, and so are their errors

    class Params(MessageFields):
        """local_size is odd: the number of channels of a window, or the side of a square of pixels."""

        local_size: int = within(1, SIZE, 5)
        alpha: float = 1.0
        beta: float = 0.75
        norm_region: str = choice("ACROSS_CHANNELS", "WITHIN_CHANNEL", default="ACROSS_CHANNELS")
        k: float = 1.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.local_size % 2 == 0:
            raise self.wrong(f"local_size {self.params.local_size} is even; it must be odd")
        return (self.spatial(bottoms[0]),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if tasks.find("lrn").limits(overlay) is None:
            return self.without_unit
        if self.params.norm_region == "WITHIN_CHANNEL":
            return "the overlay normalises across channels, not within a channel"
        size, channels = max(bottoms[0][2:]), bottoms[0][1]
        return self.beyond(overlay, "lrn", size=size, channels=channels, local_size=self.params.local_size)

    def lower(self, target: Arithmetic) -> list[Task]:
        from ..tasks import lrn  # float networks need no Tasks

        (bottom,), (top,), p = self.bottoms, self.tops, self.params
        # float32, as Caffe and ONNX files hold them: the same network has the same table from either
        k, alpha, beta = (float(np.float32(number)) for number in (p.k, p.alpha, p.beta))
        table = lrn.lines(target, bottom, top, p.local_size, lambda sums: (k + alpha / p.local_size * sums) ** -beta)
        return [lrn.LRNTask((bottom,), top, self.origin, p.local_size, *table, target.formats[bottom].zero)]

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        p = self.params
        if p.norm_region == "WITHIN_CHANNEL" or p.beta != 0.75:
            return None
        return kernels.floats.lrn(bottoms[0], p.local_size, p.alpha, p.k)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        p = self.params
        if p.norm_region == "WITHIN_CHANNEL":
            size, half = x.shape[2:], (p.local_size - 1) // 2
            window = Window((p.local_size, p.local_size), (1, 1), (half, half))
            areas = pooling.areas(window, size, (-half, -half), (size[0] + half, size[1] + half))
            mean = pooling.sum_pool(x * x, window, size) / areas
            return (x * _negative_power(1 + p.alpha * mean, p.beta),)
        if (in_c := self.native((x.shape,), False)) is not None:
            return (in_c.run(x),)
        y = np.empty_like(x, order="C")
        rows = max(1, BAND // max(1, x.shape[1] * x.shape[3]))
        for image, result in zip(x, y):
            for first in range(0, x.shape[2], rows):  # pixels are independent
                band = image[:, first : first + rows]
                np.multiply(band, _negative_power(self._scale(band), p.beta), out=result[:, first : first + rows])
        return (y,)

    def _scale(self, image: Array) -> Array:
        """Return k + alpha / local_size * sum of squares over the local_size channels around each, (C, H, W)."""
        p = self.params
        square = image * image
        total = square.copy()
        for shift in range(1, min((p.local_size - 1) // 2, len(image) - 1) + 1):
            total[shift:] += square[:-shift]
            total[:-shift] += square[shift:]
        total *= p.alpha / p.local_size
        total += p.k
        return total


def _negative_power(x: Array, beta: float) -> Array:
    if beta == 0.75:  # the usual value; two roots are several times faster than a power
        root = np.sqrt(x)
        return 1 / (root * np.sqrt(root))
    return x ** np.float32(-beta)


class LayerNorm(Layer):
    """y = (x - mean) / sqrt(mean of (x - mean)^2 + eps), as ONNX's LayerNormalization before scale and bias."""

    fork = "ONNX"

    class Params(MessageFields):
        """axis is the first; without centered the mean is not subtracted, and the divisor is the root of the mean square."""

        axis: int = axis_index(-1)
        eps: float = within(0, 1e30, 1e-5)
        centered: bool = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        self.axis(self.params.axis, bottoms[0])
        return bottoms

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.axis(self.params.axis, bottoms[0]) == 0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        axes = tuple(range(self.axis(self.params.axis, x.shape), x.ndim))
        if self.params.centered:
            x = x - x.mean(axes, keepdims=True, dtype=np.float32)
        square = (x * x).mean(axes, keepdims=True, dtype=np.float32)
        return (x / np.sqrt(square + np.float32(self.params.eps)),)


class MVN(Layer):
    """y = (x - mean) / (sqrt(mean of (x - mean)^2) + eps); without normalize_variance y = x - mean."""

    class Params(MessageFields):
        """across_channels: one mean per image instead of one per channel."""

        normalize_variance: bool = True
        across_channels: bool = False
        eps: float = within(0, 1e30, 1e-9)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (self.spatial(bottoms[0]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        axes = (1, 2, 3) if self.params.across_channels else (2, 3)
        y = bottoms[0] - bottoms[0].mean(axes, keepdims=True, dtype=np.float32)
        if self.params.normalize_variance:
            y /= np.sqrt((y * y).mean(axes, keepdims=True, dtype=np.float32)) + np.float32(self.params.eps)
        return (y,)


class Normalize(Layer):
    """The squares are summed over channels, and over pixels too if across_spatial."""

    class Params(MessageFields):
        """across_spatial: one norm per image instead of one per pixel; channel_shared: one scale for all channels."""

        across_spatial: bool = True
        scale_filler: Filler | None = nested(Filler)
        channel_shared: bool = True
        eps: float = within(0, 1e30, 1e-10)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if len(bottoms[0]) < 2:
            raise self.wrong(f"expected a blob with channels, found {show(bottoms[0])}")
        return bottoms

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        # Caffe stores a shared scale as a blob without axes
        return ((),) if self.params.channel_shared else ((bottoms[0][1],),)

    def fillers(self) -> tuple[Filler | None, ...]:
        return (self.params.scale_filler or Filler(value=1.0),)

    def beside(self, functions: Mapping[str, Callable[..., Array]]) -> Layer:
        return self if self.params.across_spatial else super().beside(functions)

    def takes_codes(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.other is not None

    def on_codes(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> Callable[..., tuple[Array, ...]]:
        stated, other = None if self.precision is None else self.precision.side("in"), self.other
        assert other is not None
        source, target = formats[self.bottoms[0]] if stated is None else Format(*stated), formats[self.tops[0]]
        return lambda codes: (other(codes, self.blobs[0].reshape(-1), source, target),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        axes = tuple(range(1, x.ndim)) if self.params.across_spatial else (1,)
        norm = np.sqrt((x * x).sum(axes, keepdims=True) + np.float32(self.params.eps))
        return (x / norm * self.blobs[0].reshape(-1, *(1,) * (x.ndim - 2)),)
