"""Pooling: maximum or average of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..graph import Layer, Shape, show
from ..kernels import pooling
from ..lazy import np
from ..params import choice, margin, size
from ..window import Window

if TYPE_CHECKING:
    from ..graph import Array
    from ..lowering import Target
    from ..overlay import Overlay
    from ..tasks import Task


@dataclass(frozen=True)
class PoolingParams:
    """Square sizes, or the _h and _w pair; global_pooling takes the whole map."""

    pool: str = choice("MAX", "AVE", default="MAX")
    pad: int = margin(0)
    pad_h: int = margin(0)
    pad_w: int = margin(0)
    kernel_size: int | None = size()
    kernel_h: int | None = size()
    kernel_w: int | None = size()
    stride: int = size(1)
    stride_h: int | None = size()
    stride_w: int | None = size()
    global_pooling: bool = False
    round_mode: str = choice("CEIL", "FLOOR", default="CEIL")


class Pooling(Layer):
    """Sizes round up; with padding, a last window that would begin behind the padded image is dropped.

    MAX never sees the padding. AVE divides by the window clipped at size + pad, so padding inside it counts.
    """

    message = "pooling_param"
    Params = PoolingParams

    def window(self, shape: Shape) -> Window:
        """The window over a map of this shape."""
        p = self.params
        if p.global_pooling:
            if p.kernel_size or p.kernel_h or p.kernel_w:
                raise self.wrong("global_pooling takes no kernel size")
            if p.pad or p.pad_h or p.pad_w or p.stride != 1 or (p.stride_h or 1) != 1 or (p.stride_w or 1) != 1:
                raise self.wrong("global_pooling needs pad 0 and stride 1")
            return Window((shape[2], shape[3]), (1, 1), (0, 0))
        if p.kernel_size and (p.kernel_h or p.kernel_w):
            raise self.wrong("kernel_size and kernel_h / kernel_w are both given")
        kernel = (p.kernel_h or p.kernel_size, p.kernel_w or p.kernel_size)
        if None in kernel:
            raise self.wrong(
                "kernel_size is missing", hint="kernel_size: 3, or kernel_h: 3 kernel_w: 1, or global_pooling: true"
            )
        pad = (p.pad_h or p.pad, p.pad_w or p.pad)
        if pad[0] >= kernel[0] or pad[1] >= kernel[1]:
            raise self.wrong(f"pad {show(pad)} is not smaller than the kernel {show(kernel)}")
        return Window(kernel, (p.stride_h or p.stride, p.stride_w or p.stride), pad)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, *size = self.spatial(bottoms[0])
        window = self.window(bottoms[0])
        out = []
        for i in range(2):
            span = size[i] + 2 * window.pad[i] - window.kernel[i]
            steps = span // window.stride[i] if self.params.round_mode == "FLOOR" else -(-span // window.stride[i])
            # Caffe rounds up, then drops a window that starts in the padding behind the image
            if any(window.pad) and steps * window.stride[i] >= size[i] + window.pad[i]:
                steps -= 1
            if steps < 0:
                raise self.wrong(f"kernel {show(window.kernel)} is larger than the padded input {show(tuple(size))}")
            out.append(steps + 1)
        return ((n, c, *out),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        window = self.window(bottoms[0])
        if self.slope is not None:
            return "a ReLU behind a pooling"
        area = window.kernel[0] * window.kernel[1]
        if self.params.pool == "AVE" and area << 7 >= overlay.accumulator_bound:
            return f"an average over {area} pixels could leave the accumulator"
        out = self.shapes(*bottoms)[0][2:]
        if any((out[i] - 1) * window.stride[i] - window.pad[i] >= bottoms[0][2 + i] for i in range(2)):
            return "its last window lies behind the image"
        whole = window.kernel == bottoms[0][2:] and not any(window.pad)
        sizes = {"stride": max(window.stride), "pad": max(window.pad), "channels": bottoms[0][1]}
        return self.beyond(overlay, "pool", **sizes, **{"global" if whole else "kernel": max(window.kernel)})

    def lower(self, target: Target) -> list[Task]:
        from ..tasks.pool import Pool  # float networks need no Tasks

        shape = target.shapes[self.bottoms[0]]
        window, out = self.window(shape), self.shapes(shape)[0][2:]
        r = None
        if self.params.pool == "AVE":
            step = target.formats[self.bottoms[0]].step
            r = target.requantization(
                step / pooling.areas(window, shape[2:], out).astype(np.float64), self.tops[0], None
            )
        return [Pool(self.bottoms, self.tops[0], self.origin, window, (out[0], out[1]), r)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        window = self.window(x.shape)
        out = self.shapes(x.shape)[0][2:]
        if self.params.pool == "MAX":
            return (pooling.max_pool(x, window, out),)
        return (pooling.sum_pool(x, window, out) / pooling.areas(window, x.shape[2:], out),)
