"""ROIPooling: each region's maxima in a grid of parts."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._regions import RegionLayer, cut, half_away


@dataclass(frozen=True)
class ROIPoolingParams:
    """Number of parts down and across, and pixels of the map per pixel of the image."""

    pooled_h: int = within(0, SIZE, 0)
    pooled_w: int = within(0, SIZE, 0)
    spatial_scale: float = 1.0


class ROIPooling(RegionLayer):
    """Corners are rounded to pixels of the map, both included; parts without pixels give 0. Top: (regions, C, h, w)."""

    message = "roi_pooling_param"
    Params = ROIPoolingParams
    fork = "rbgirshick/caffe-fast-rcnn"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        regions = self.regions(*bottoms)
        if self.params.pooled_h < 1 or self.params.pooled_w < 1:
            raise self.wrong("pooled_h or pooled_w is missing")
        return ((regions, bottoms[0][1], self.params.pooled_h, self.params.pooled_w),)

    def bounds(self, start: float, end: float, i: int) -> Array:
        first, last = (half_away(float(np.float32(c) * np.float32(self.params.spatial_scale))) for c in (start, end))
        # cut at 0, then moved, so that the parts do not depend on the region's position
        return cut(0, max(last - first + 1, 1), (self.params.pooled_h, self.params.pooled_w)[i]) + first

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        maps = bottoms[0]
        y = np.zeros(self.shapes(maps.shape, bottoms[1].shape)[0], np.float32)
        for top, (image, down, right) in zip(y, self.cells(maps, bottoms[1])):
            for i, (h0, h1) in enumerate(down):
                for j, (w0, w1) in enumerate(right):
                    if h0 < h1 and w0 < w1:
                        top[:, i, j] = maps[image, :, h0:h1, w0:w1].max((1, 2))
        return (y,)
