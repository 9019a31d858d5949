"""Nearest-neighbour resizing: pixels repeated as rectangles.

ResizeNearestNeighbor: nearest-neighbour resizing of a map.
UpsampleDarknet: every pixel repeated as a square.
"""

from __future__ import annotations

from .. import tasks
from ..blob import Array, Shape
from ..graph import Arithmetic, Layer
from ..graph.params import SIZE, MessageFields, size, within
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.upsample import too_many_rows
from ..text import number_of
from ..util.lazy_numpy import np


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
            axes = number_of(len(bottoms[0]), "axis")
            return number_of(len(bottoms), "bottom") if len(bottoms) != 1 else f"a blob of {axes}"
        factors = self.repeats(bottoms[0])
        return factors if isinstance(factors, str) else upsample_refused(self, overlay, bottoms[0], factors)

    def lower(self, target: Arithmetic) -> list[Task]:
        factors = self.repeats(target.shapes[self.bottoms[0]])
        assert not isinstance(factors, str)
        return [target.upsample(self, self.tops[0], factors)]


def upsample_refused(layer: Layer, overlay: Overlay, bottom: Shape, factors: tuple[int, int]) -> str | None:
    """Return why the overlay cannot make rectangles of a bottom's pixels, or put zeros around them; None if it can."""
    _, channels, height, width = bottom
    sizes = {"factor": max(factors), "size": max(height * factors[0], width * factors[1]), "channels": channels}
    return layer.beyond(overlay, "upsample", **sizes) or too_many_rows(overlay, channels, height)


class ResizeNearestNeighbor(RepeatLayer):
    """Pixel i copies i * size / new size, rounded down; half_pixel_centers: (i + 0.5) * size / new size, rounded down.

    align_corners: i * (size - 1) / (new size - 1), rounded half up, so that corners map to corners.
    """

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    class Params(MessageFields):
        """output_height and output_width, or else factors scale_height and scale_width, rounded down."""

        align_corners: bool = False
        output_height: int | None = within(1, SIZE)
        output_width: int | None = within(1, SIZE)
        data_format: str = "NHWC"
        scale_height: float = within(1e-6, SIZE, 1.0)
        scale_width: float = within(1e-6, SIZE, 1.0)
        half_pixel_centers: bool = False

    @property
    def _first(self) -> int:
        """Return the axis of rows."""
        return 1 if self.params.data_format == "NHWC" else 2

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        top = list(self.spatial(bottoms[0]))
        if p.align_corners and p.half_pixel_centers:
            raise self.wrong("align_corners and half_pixel_centers are both given")
        for i, (new, scale) in enumerate(
            ((p.output_height, p.scale_height), (p.output_width, p.scale_width)), self._first
        ):
            top[i] = int(np.float32(top[i]) * np.float32(scale)) if new is None else new
            if top[i] < 1:
                raise self.wrong(f"nothing is left of {bottoms[0][i]} pixels times {scale:g}")
        return (tuple(top),)

    def repeats(self, bottom: Shape) -> tuple[int, int] | str:
        top = self.shapes(bottom)[0]
        if self._first != 2 or any(
            new % old or (self._from(old, new) != np.arange(new) // (new // old)).any()
            for old, new in zip(bottom[2:], top[2:])
        ):
            return "it does more than repeat pixels"
        return top[2] // bottom[2], top[3] // bottom[3]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        top = self.shapes(x.shape)[0]
        for axis in (self._first, self._first + 1):
            x = np.take(x, self._from(x.shape[axis], top[axis]), axis)
        return (x,)

    def _from(self, old: int, new: int) -> Array:
        """Return the source pixel of each new one; computed in float32, whose rounding decides ties."""
        p, i = self.params, np.arange(new, dtype=np.float32)
        if p.align_corners and new > 1:
            place = np.floor(i * np.float32((old - 1) / np.float32(new - 1)) + np.float32(0.5))
        else:
            step = np.float32(old / np.float32(new))
            # with align_corners a single pixel copies pixel 0, and so it does by this formula
            place = np.floor((i + np.float32(0.5 if p.half_pixel_centers else 0)) * step)
        pixels: Array = np.minimum(place.astype(np.intp), old - 1)
        return pixels


class UpsampleDarknet(RepeatLayer):
    """(N, C, H, W) to (N, C, H * stride, W * stride)."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    keeps_sign = True

    class Params(MessageFields):
        stride: int = size(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, h, w = self.spatial(bottoms[0])
        return ((n, c, h * self.params.stride, w * self.params.stride),)

    def repeats(self, bottom: Shape) -> tuple[int, int]:
        return self.params.stride, self.params.stride

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0].repeat(self.params.stride, 2).repeat(self.params.stride, 3),)
