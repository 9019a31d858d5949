"""LRN: y = x / (k + alpha * mean of squares nearby) ^ beta, over neighbouring channels or pixels."""

from __future__ import annotations

from .. import kernels, tasks
from ..blob import Array, Shape
from ..graph import Arithmetic, Layer
from ..graph.params import SIZE, MessageFields, choice, within
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
