"""PSROIPooling: each region's averages in a grid of parts, each part from separate channels."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph.params import size
from ..util.lazy_numpy import np
from ._regions import RegionLayer, cut, half_away


class PSROIPooling(RegionLayer):
    """Part (i, j) of channel c averages channel (c * group_size + i) * group_size + j; a part without pixels gives 0.

    A region extends from round(corner) to round(other corner) + 1, times spatial_scale, and at least 0.1 in each axis.
    """

    message = "psroi_pooling_param"
    fork = "daijifeng001/caffe-rfcn"

    @dataclass(frozen=True)
    class Params:
        """All three are required: group_size x group_size parts, output_dim channels of the top."""

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
