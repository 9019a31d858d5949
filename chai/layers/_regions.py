"""Base of layers that pool regions of interest."""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..graph import Layer
from ..util.lazy_numpy import np
from ._index import rows


class RegionLayer(Layer):
    """Bottoms: maps (N, C, H, W), and regions of 5 numbers: image, x1, y1, x2, y2 in pixels of the image."""

    bottoms_allowed = (2, 2)

    def regions(self, maps: Shape, regions: Shape) -> int:
        """Return the number of regions. Raises ShapeError unless each has 5 numbers."""
        self.spatial(maps)
        if len(regions) < 2 or count(regions[1:]) != 5:
            raise self.wrong(f"expected regions of 5 numbers, found {show(regions)}")
        return regions[0]

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return True

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
