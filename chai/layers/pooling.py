"""Pooling: maximum, average, or expected value of stochastic pooling in a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from .. import kernels
from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields, choice, margin, size
from ..kernels import pooling
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.tiling import beyond_pool
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div
from ._window import sides


class Pooling(Layer):
    """Sizes round up; with padding, a last window that would start in the padding after the image is dropped.

    With chai_begin_inside, as in ONNX, a window that would start after the image is dropped without padding, too.

    MAX ignores the padding; its second top, if there is one, holds the index of each maximum in the map. AVE divides by the
    area of the window clipped at size + pad, so padding inside it counts; AVE_EXC_PAD by the number of pixels. A window that
    begins just after the image, which a stride larger than the kernel can bring about, has an area of 0 and an average of NaN.
    STOCHASTIC at TEST is the expected value of a pixel drawn with a probability proportional to it: sum of squares / sum.
    """

    new_tops = True
    tops_allowed = (1, 2)
    precision_expected = True
    _measured: tuple[Any, Shape, tuple[Window, Shape, Array | None]] | None = None  # of these parameters and this map

    class Params(MessageFields):
        """Square sizes, or the _h and _w pair; global_pooling takes the whole map.

        The Synopsys fork adds AVE_EXC_PAD, a padding for each side, and ceil_mode, an alternative to round_mode.
        chai_begin_inside is chai's own: see Pooling.
        """

        pool: str = choice("MAX", "AVE", "STOCHASTIC", "AVE_EXC_PAD", default="MAX")
        pad: int = margin(0)
        pad_h: int = margin(0)
        pad_w: int = margin(0)
        pad_l: int = margin(0)
        pad_r: int = margin(0)
        pad_t: int = margin(0)
        pad_b: int = margin(0)
        kernel_size: int | None = size()
        kernel_h: int | None = size()
        kernel_w: int | None = size()
        stride: int = size(1)
        stride_h: int | None = size()
        stride_w: int | None = size()
        global_pooling: bool = False
        round_mode: str = choice("CEIL", "FLOOR", default="CEIL")
        ceil_mode: bool = True
        chai_begin_inside: bool = False

    def window(self, shape: Shape) -> Window:
        p = self.params
        if p.global_pooling:
            if p.kernel_size or p.kernel_h or p.kernel_w:
                raise self.wrong("global_pooling takes no kernel size")
            if any(sum(self._sides, ())) or p.stride != 1 or (p.stride_h or 1) != 1 or (p.stride_w or 1) != 1:
                raise self.wrong("global_pooling needs pad 0 and stride 1")
            return Window((shape[2], shape[3]), (1, 1), (0, 0))
        if p.kernel_size and (p.kernel_h or p.kernel_w):
            raise self.wrong("kernel_size and kernel_h / kernel_w are both given")
        kernel = (p.kernel_h or p.kernel_size, p.kernel_w or p.kernel_size)
        if None in kernel:
            raise self.wrong(
                "kernel_size is missing", hint="kernel_size: 3, or kernel_h: 3 kernel_w: 1, or global_pooling: true"
            )
        for pad in self._sides:
            if pad[0] >= kernel[0] or pad[1] >= kernel[1]:
                raise self.wrong(f"pad {show(pad)} is not smaller than the kernel {show(kernel)}")
            if any(pad) and p.pool == "STOCHASTIC":
                raise self.wrong("STOCHASTIC takes no padding")
        return Window(kernel, (p.stride_h or p.stride, p.stride_w or p.stride), self._sides[0])

    @property
    def _sides(self) -> tuple[tuple[int, int], tuple[int, int]]:
        p = self.params
        return sides(self, (p.pad_h or p.pad, p.pad_w or p.pad))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, *size = self.spatial(bottoms[0])
        window, p, (before, after) = self.window(bottoms[0]), self.params, self._sides
        if len(self.tops) > 1 and p.pool != "MAX":
            raise self.wrong(f"only MAX has a second top, this is {p.pool}")
        down = p.round_mode == "FLOOR" or not p.ceil_mode
        out = []
        for i in range(2):
            span = size[i] + before[i] + after[i] - window.kernel[i]
            steps = span // window.stride[i] if down else ceil_div(span, window.stride[i])
            # Caffe rounds up, then drops a window that starts in the padding after the image
            drops = (any(before + after) or p.chai_begin_inside) and not self.whole_windows
            if drops and steps * window.stride[i] >= size[i] + window.pad[i]:
                steps -= 1
            if steps < 0:
                raise self.wrong(f"kernel {show(window.kernel)} is larger than the padded input {show(tuple(size))}")
            out.append(steps + 1)
        return ((n, c, *out),) * len(self.tops)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        window = self.window(bottoms[0])
        if self.slope is not None:
            return "a ReLU after a pooling"
        if len(self.tops) > 1:
            return "the overlay does not say where a maximum was"
        if self.params.pool == "STOCHASTIC":
            return "the overlay has no STOCHASTIC"
        size, out = bottoms[0][2:], self.shapes(*bottoms)[0][2:]
        average = self.params.pool != "MAX"
        reason = beyond_pool(overlay, window, size, out, average, self.whole_windows)
        sizes = {"stride": max(window.stride), "pad": max(window.pad), "channels": bottoms[0][1]}
        sizes["size"] = max(*size, *out)
        sizes["global" if window.covers(size) else "kernel"] = max(window.kernel)
        return reason or self.beyond(overlay, "pool", method="AVE" if average else "MAX", **sizes)

    def unlike_caffe(self, *bottoms: Shape) -> str | None:
        if not self.whole_windows:
            return None
        caffe = copy(self)
        caffe.whole_windows = False
        own, others = (layer.shapes(*bottoms)[0][2:] for layer in (self, caffe))
        return None if own == others else f"{show(own)}, in Caffe {show(others)}: no window in the padding is dropped"

    def lower(self, target: Arithmetic) -> list[Task]:
        window, out, areas = self._windows(target.shapes[self.bottoms[0]])
        return [target.pool(self, window, (out[0], out[1]), areas)]

    @property
    def keeps_format(self) -> bool:
        return bool(self.params.pool == "MAX")

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return all(bottoms) and len(self.tops) == 1  # a second top holds indices, -1 for an empty window

    @property
    def averages(self) -> bool:
        return bool(self.params.pool != "MAX")

    @property
    def error_sensitive(self) -> bool:
        """Return whether it averages: rounding errors cancel in an average, errors from clipping do not."""
        return bool(self.params.pool == "AVE")

    def channels_from(self, bottom: str, shapes: Mapping[str, Shape]) -> int | None:
        return 0 if self.slope is None else None

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        window, out, areas = self._windows(x.shape)
        if len(self.tops) > 1:
            return pooling.max_pool_and_place(x, window, out)
        if areas is None:
            top = pooling.max_pool(x, window, out)
            if self.whole_windows:  # of padding alone have 0
                top = np.where(pooling.areas(window, out, (0, 0), x.shape[2:]) <= 0, np.float32(0), top)
            return (top,)
        if self.params.pool == "STOCHASTIC":  # as in Caffe, FLT_MIN avoids a division by 0
            total = pooling.sum_pool(x, window, out)
            return (pooling.sum_pool(x * x, window, out) / (total + np.finfo(np.float32).tiny),)
        return (pooling.mean_pool(x, window, out, areas),)

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        if len(self.tops) > 1 or self.params.pool == "STOCHASTIC" or self.unlike_caffe(*bottoms):
            return None
        return kernels.floats.pool(bottoms[0], *self._windows(bottoms[0]))

    def _windows(self, shape: Shape) -> tuple[Window, Shape, Array | None]:
        """Return the window over a map of this shape, the numbers of its places, down and across, and what averages divide by."""
        last = self._measured  # another thread may replace it
        if last is None or last[0] is not self.params or last[1] != shape:
            window, out = self.window(shape), self.shapes(shape)[0][2:]
            areas = None if self.params.pool == "MAX" else self._areas(shape, window, out)
            last = self._measured = self.params, shape, (window, out, areas)
        return last[2]

    def _areas(self, shape: Shape, window: Window, out: Shape) -> Array:
        """Return the number of pixels that each average is divided by."""
        before, after = ((0, 0), (0, 0)) if self.params.pool == "AVE_EXC_PAD" else self._sides
        last = shape[2] + after[0], shape[3] + after[1]
        areas = pooling.areas(window, out, (-before[0], -before[1]), last)
        return np.maximum(areas, 1) if self.whole_windows else areas  # one beyond the padding has a sum of 0
