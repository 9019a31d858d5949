"""Regions of interest of a map, each as a grid of parts.

PSROIPooling: each region's averages in a grid of parts, each part from separate channels.
RoiAlign: means of regions in a grid of parts, read between pixels.
ROIPooling: each region's maxima in a grid of parts.
"""

from __future__ import annotations

from math import ceil, isfinite

from ..blob import Array, Shape, count, show
from ..errors import ModelError
from ..graph import Layer
from ..graph.params import SIZE, MessageFields, size, within
from ..util.lazy_numpy import np
from .selection import rows


class RegionLayer(Layer):
    """Bottoms: maps (N, C, H, W), and regions of 5 numbers: image, x1, y1, x2, y2 in pixels of the image."""

    bottoms_allowed = (2, 2)
    whole_batch = True

    def regions(self, maps: Shape, regions: Shape) -> int:
        """Return the number of regions. Raises ShapeError unless each has 5 numbers."""
        self.spatial(maps)
        if len(regions) < 2 or count(regions[1:]) != 5:
            raise self.wrong(f"expected regions of 5 numbers, found {show(regions)}")
        return regions[0]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        maps, regions = bottoms[0], bottoms[1].reshape(len(bottoms[1]), 5)
        y = np.zeros(self.shapes(maps.shape, bottoms[1].shape)[0], np.float32)
        for top, image, corners in zip(y, rows(self, regions[:, 0], len(maps)), regions[:, 1:]):
            down, right = (
                np.clip(self.bounds(corners[1 - i], corners[3 - i], i), 0, maps.shape[2 + i]).astype(np.int64)
                for i in range(2)
            )
            for i, (h0, h1) in enumerate(down):
                for j, (w0, w1) in enumerate(right):
                    if h0 < h1 and w0 < w1:
                        top[:, i, j] = self.pooled(maps[image, :, h0:h1, w0:w1], i, j)
        return (y,)

    def bounds(self, start: float, end: float, i: int) -> Array:
        """Return start and end (parts, 2), not clipped, of the parts of a region from ``start`` to ``end`` on axis ``i``."""
        raise NotImplementedError(self.type)

    def pooled(self, part: Array, i: int, j: int) -> Array:
        """Return the pixel of the top for the pixels (C, h, w) of part (i, j) of a region, of which there are some."""
        raise NotImplementedError(self.type)


def half_away(x: float) -> float:
    """Round to the nearest integer, halves away from zero, as C's round."""
    return float(np.copysign(np.floor(np.abs(x) + 0.5), x))


def cut(start: float, size: float, parts: int) -> Array:
    """Cut [start, start + size) into ``parts`` parts of whole pixels: floor(p * size / parts) to ceil((p + 1) * ...)."""
    step, first = np.float32(size) / np.float32(parts), np.float32(start)
    p = np.arange(parts, dtype=np.float32)
    return np.stack([np.floor(p * step + first), np.ceil((p + 1) * step + first)], 1)


class PSROIPooling(RegionLayer):
    """Part (i, j) of channel c averages channel (c * group_size + i) * group_size + j; a part without pixels gives 0.

    A region extends from round(corner) to round(other corner) + 1, times spatial_scale, and at least 0.1 in each axis.
    """

    fork = "daijifeng001/caffe-rfcn"

    class Params(MessageFields):
        """group_size x group_size parts, output_dim channels of the top."""

        spatial_scale: float | None = None
        output_dim: int | None = size()
        group_size: int | None = size()

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        p = self.params
        regions = self.regions(*bottoms)
        if None in (p.spatial_scale, p.output_dim, p.group_size):
            raise self.wrong("spatial_scale, output_dim or group_size is missing")
        if bottoms[0][1] != p.output_dim * p.group_size**2:
            raise self.wrong(
                f"{show(bottoms[0])}: expected output_dim * group_size^2 = {p.output_dim * p.group_size**2} channels"
            )
        return ((regions, p.output_dim, p.group_size, p.group_size),)

    def bounds(self, start: float, end: float, i: int) -> Array:
        scale = np.float32(self.params.spatial_scale)
        first, last = np.float32(half_away(start)) * scale, np.float32(half_away(end) + 1) * scale
        return cut(float(first), float(max(last - first, np.float32(0.1))), self.params.group_size)

    def pooled(self, part: Array, i: int, j: int) -> Array:
        parts = self.params.group_size
        means: Array = part[i * parts + j :: parts**2].mean((1, 2), dtype=np.float32)
        return means


SAMPLES = 1 << 16  # of a region along one axis


class RoiAlign(Layer):
    """Bottoms: maps (N, C, H, W), regions (R, 4): x1, y1, x2, y2 in pixels of the image, and the images (R,) that they are in.

    Each part of a region is the mean of samples that lie evenly in it (He et al., Mask R-CNN, 2017). A sample is interpolated
    between four pixels, and 0 if it lies more than one pixel outside the map. With half_pixel pixels have their centres at half a
    pixel; without, regions are at least one pixel large.
    """

    fork = "ONNX"
    bottoms_allowed = (3, 3)
    new_tops = whole_batch = True

    class Params(MessageFields):
        """Parts down and across, pixels of the map per pixel of the image, samples of a part along each axis (0: by its size)."""

        pooled_h: int = size(1)
        pooled_w: int = size(1)
        spatial_scale: float = 1.0
        sampling_ratio: int = within(0, SIZE, 0)
        half_pixel: bool = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        maps, regions, images = bottoms
        channels = self.spatial(maps)[1]
        if len(regions) != 2 or regions[1] != 4 or images != regions[:1]:
            raise self.wrong(
                f"expected regions of 4 numbers and an image for each, found {show(regions)}, {show(images)}"
            )
        return ((regions[0], channels, self.params.pooled_h, self.params.pooled_w),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        maps, regions, images = bottoms
        p = self.params
        y = np.empty(self.shapes(*(bottom.shape for bottom in bottoms))[0], np.float32)
        for top, image, (x1, y1, x2, y2) in zip(y, rows(self, images, len(maps)), regions.tolist()):
            down = self._shares(y1, y2, p.pooled_h, maps.shape[2])
            right = self._shares(x1, x2, p.pooled_w, maps.shape[3])
            top[:] = down @ maps[image] @ right.T
        return (y,)

    def _shares(self, start: float, end: float, parts: int, size: int) -> Array:
        """Return how much of each pixel along an axis is in each part of a region, float32 (parts, size)."""
        p = self.params
        first = start * p.spatial_scale - (0.5 if p.half_pixel else 0)
        extent = (end - start) * p.spatial_scale
        extent = extent if p.half_pixel else max(extent, 1.0)
        if not (isfinite(first) and isfinite(extent)):
            return np.full((parts, size), np.nan, np.float32)
        each = p.sampling_ratio or max(ceil(extent / parts), 0)
        if each * parts > SAMPLES:
            what = f"a region from {start:g} to {end:g} has more than {SAMPLES:,} samples along an axis"
            raise self.failure(ModelError(what))
        shares = np.zeros((parts, size))
        at = first + (np.arange(parts)[:, None] + (np.arange(each) + 0.5) / max(each, 1)) * (extent / parts)
        inside = (at >= -1) & (at <= size)
        at = np.clip(at, 0, size - 1)
        low = np.minimum(np.floor(at).astype(np.intp), size - 1)
        part = np.broadcast_to(np.arange(parts)[:, None], at.shape)
        np.add.at(shares, (part, low), inside * (1 - (at - low)))
        np.add.at(shares, (part, np.minimum(low + 1, size - 1)), inside * (at - low))
        shares /= max(each, 1)
        return shares.astype(np.float32)


class ROIPooling(RegionLayer):
    """Corners are rounded to pixels of the map, both included; parts without pixels give 0. Top: (regions, C, h, w)."""

    fork = "rbgirshick/caffe-fast-rcnn"

    class Params(MessageFields):
        """Number of parts down and across, and pixels of the map per pixel of the image."""

        pooled_h: int = within(0, SIZE, 0)
        pooled_w: int = within(0, SIZE, 0)
        spatial_scale: float = 1.0

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        regions = self.regions(*bottoms)
        if self.params.pooled_h < 1 or self.params.pooled_w < 1:
            raise self.wrong("pooled_h or pooled_w is missing")
        return ((regions, bottoms[0][1], self.params.pooled_h, self.params.pooled_w),)

    def bounds(self, start: float, end: float, i: int) -> Array:
        first, last = (half_away(float(np.float32(c) * np.float32(self.params.spatial_scale))) for c in (start, end))
        # cut at 0, then moved, so that the parts do not depend on the region's position
        return cut(0, max(last - first + 1, 1), (self.params.pooled_h, self.params.pooled_w)[i]) + first

    def pooled(self, part: Array, i: int, j: int) -> Array:
        maxima: Array = part.max((1, 2))
        return maxima
