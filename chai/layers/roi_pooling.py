"""ROIPooling: each region's maxima in a grid of parts."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph.params import SIZE, within
from ..util.lazy_numpy import np
from ._regions import RegionLayer, cut, half_away


class ROIPooling(RegionLayer):
    """Corners are rounded to pixels of the map, both included; parts without pixels give 0. Top: (regions, C, h, w)."""

    message = "roi_pooling_param"
    fork = "rbgirshick/caffe-fast-rcnn"

    @dataclass(frozen=True)
    class Params:
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
