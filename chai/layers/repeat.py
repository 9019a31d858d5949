"""Nearest-neighbour resizing: pixels repeated as rectangles.

ResizeNearestNeighbor: nearest-neighbour resizing of a map.
Upsample: pixels moved back to the positions of a max pooling's maxima, or every pixel repeated as a square.
UpsampleDarknet: every pixel repeated as a square.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import tasks
from ..blob import Array, Shape, show
from ..errors import ModelError
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


class Upsample(RepeatLayer):
    """Two forks have a type of this name; they differ in the number of bottoms.

    SegNet: the bottoms are x and the second top of a Pooling, which holds the index of each element of x in the top; all
    others are 0; the default factor is 2. MobileNet-YOLO: one bottom; every pixel becomes a square of scale x scale; the
    default scale is 1.
    """

    bottoms_allowed = (1, 2)
    fork = "alexgkendall/caffe-segnet; eric612/MobileNet-YOLO"

    class Params(MessageFields):
        """upsample_h and upsample_w are the top's size; scale, or scale_h and scale_w, its factor.

        pad_out_h and pad_out_w remove one row or column again (scale 2 only).
        """

        scale: int | None = size()
        scale_h: int | None = size()
        scale_w: int | None = size()
        pad_out_h: bool = False
        pad_out_w: bool = False
        upsample_h: int | None = size()
        upsample_w: int | None = size()

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        n, c, *old = self.spatial(bottoms[0])
        if len(bottoms) == 1:
            if any(f is not None for f in (p.scale_h, p.scale_w, p.upsample_h, p.upsample_w)):
                raise self.wrong("of one bottom only scale can be given")
            return ((n, c, *(d * (p.scale or 1) for d in old)),)
        if bottoms[1] != bottoms[0]:
            raise self.wrong(f"the places {show(bottoms[1])} are not of the blob {show(bottoms[0])}")
        if p.upsample_h and p.upsample_w:
            return ((n, c, p.upsample_h, p.upsample_w),)
        new = []
        for d, factor, less in zip(old, (p.scale_h, p.scale_w), (p.pad_out_h, p.pad_out_w)):
            factor = factor or p.scale or 2
            if less and factor != 2:
                raise self.wrong(f"pad_out_h and pad_out_w need scale 2, found {factor}")
            new.append(d * factor - less)
        return ((n, c, *new),)

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return bottoms[0]  # the other bottom holds indices

    def repeats(self, bottom: Shape) -> tuple[int, int]:
        scale = self.params.scale or 1
        return scale, scale

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        if len(bottoms) == 1:
            return (x.repeat(self.params.scale or 1, 2).repeat(self.params.scale or 1, 3),)
        n, c, h, w = self.shapes(x.shape, bottoms[1].shape)[0]
        places = bottoms[1].reshape(n * c, -1).astype(np.intp)
        if places.size and not 0 <= places.min() <= places.max() < h * w:
            what = f"places from {places.min()} to {places.max()} in a map of {h}x{w}: is it the pooling's input size?"
            raise self.failure(ModelError(what))
        y = np.zeros((n * c, h * w), np.float32)
        # row by row, so that the last of several pixels with one index wins, as in a loop
        y[np.arange(n * c).reshape(-1, 1), places] = x.reshape(n * c, -1)
        return (y.reshape(n, c, h, w),)


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
