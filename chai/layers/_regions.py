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

    def cells(self, maps: Array, regions: Array) -> list[tuple[int, Array, Array]]:
        """Return for each region its image, and the ``bounds`` of its parts in rows and columns, clipped to the map."""
        images = rows(self, regions.reshape(len(regions), 5)[:, 0], len(maps))
        found = []
        for image, corners in zip(images, regions.reshape(len(regions), 5)[:, 1:]):
            sides = [
                np.clip(self.bounds(corners[1 - i], corners[3 - i], i), 0, maps.shape[2 + i]).astype(np.int64)
                for i in range(2)
            ]
            found.append((int(image), sides[0], sides[1]))
        return found

    def bounds(self, start: float, end: float, i: int) -> Array:
        """Return start and end (parts, 2), not clipped, of the parts of a region from ``start`` to ``end`` on axis ``i``."""
        raise NotImplementedError(self.type)


def half_away(x: float) -> float:
    """Round to the nearest integer, halves away from zero, as C's round."""
    return float(np.copysign(np.floor(np.abs(x) + 0.5), x))


def cut(start: float, size: float, parts: int) -> Array:
    """Cut [start, start + size) into ``parts`` parts of whole pixels: floor(p * size / parts) to ceil((p + 1) * ...)."""
    step, first = np.float32(size) / np.float32(parts), np.float32(start)
    p = np.arange(parts, dtype=np.float32)
    return np.stack([np.floor(p * step + first), np.ceil((p + 1) * step + first)], 1)
