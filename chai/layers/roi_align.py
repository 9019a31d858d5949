"""RoiAlign: means of regions in a grid of parts, read between pixels."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

from ..blob import Array, Shape, show
from ..errors import ModelError
from ..graph import Layer
from ..graph.params import SIZE, size, within
from ..util.lazy_numpy import np
from ._index import rows

SAMPLES = 1 << 16  # of a region along one axis


class RoiAlign(Layer):
    """Bottoms: maps (N, C, H, W), regions (R, 4): x1, y1, x2, y2 in pixels of the image, and the images (R,) that they are in.

    Each part of a region is the mean of samples that lie evenly in it (He et al., Mask R-CNN, 2017). A sample is interpolated
    between four pixels, and 0 if it lies more than one pixel outside the map. With half_pixel pixels have their centres at half a
    pixel; without, regions are at least one pixel large.
    """

    message = "roi_align_param"
    fork = "ONNX"
    bottoms_allowed = (3, 3)
    new_tops = True

    @dataclass(frozen=True)
    class Params:
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

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return True

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
