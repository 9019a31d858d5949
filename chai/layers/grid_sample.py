"""GridSample: a map read at places that another blob has, as by torch.nn.functional.grid_sample."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import choice
from ..util.lazy_numpy import np
from .resize import cubic_weight


class GridSample(Layer):
    """Bottoms: maps (N, C, ...) of any number of axes, and places (N, ..., axes), the last axis of the map first.

    -1 and 1 are the map's ends: the centres of its last pixels with align_corners, else their edges.
    """

    fork = "ONNX"
    bottoms_allowed = (2, 2)
    new_tops = True

    @dataclass(frozen=True)
    class Params:
        """Interpolation, and what is outside the map: 0, its nearest pixel, or the map mirrored."""

        mode: str = choice("LINEAR", "NEAREST", "CUBIC", default="LINEAR")
        outside: str = choice("ZEROS", "BORDER", "REFLECTION", default="ZEROS")
        align_corners: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        maps, places = bottoms
        if len(maps) < 3 or len(places) != len(maps) or places[0] != maps[0] or places[-1] != len(maps) - 2:
            raise self.wrong(
                f"maps {show(maps)} and places {show(places)}; expected as many axes and images, and a number for each axis"
            )
        return ((*maps[:2], *places[1:-1]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        maps, places = bottoms
        n, c, *sizes = maps.shape
        y = np.zeros(self.shapes(maps.shape, places.shape)[0], np.float32)
        for image, at, out in zip(maps.reshape(n, c, -1), places.reshape(n, -1, len(sizes)), y.reshape(n, c, -1)):
            axes = [[*self._taps(at[:, -1 - i].astype(np.float64), size)] for i, size in enumerate(sizes)]
            for taps in product(*axes):
                index, weight = np.zeros(len(at), np.intp), np.ones(len(at))
                for size, (pixel, share) in zip(sizes, taps):
                    index, weight = index * size + pixel, weight * share
                out += image[:, index] * weight.astype(np.float32)
        return (y,)

    def _taps(self, places: Array, size: int) -> Iterator[tuple[Array, Array]]:
        """Yield the pixels of an axis that are read at these places, and their weights (0 outside the map)."""
        p = self.params
        at = (places + 1) / 2 * (size - 1) if p.align_corners else ((places + 1) * size - 1) / 2
        at = np.where(np.isfinite(at), at, -1e9)
        at = self._inside(np.rint(at) if p.mode == "NEAREST" else at, size)
        first = np.floor(at)
        for tap in {"NEAREST": (0,), "LINEAR": (0, 1), "CUBIC": (-1, 0, 1, 2)}[p.mode]:
            pixel, distance = first + tap, np.abs(at - first - tap)
            weight = cubic_weight(distance, -0.75) if p.mode == "CUBIC" else 1 - distance
            if p.outside == "ZEROS":
                weight = np.where((pixel < 0) | (pixel >= size), 0, weight)
            else:
                pixel = self._inside(pixel, size)
            yield np.clip(pixel, 0, size - 1).astype(np.intp), weight

    def _inside(self, at: Array, size: int) -> Array:
        """Return places of which those outside the map are moved into it."""
        low, high = (0.0, size - 1.0) if self.params.align_corners else (-0.5, size - 0.5)
        if self.params.outside == "ZEROS":
            return at
        outside = (at < low) | (at > high)
        if self.params.outside == "BORDER":
            return np.where(outside, np.clip(at, 0, size - 1), at)
        if high == low:
            return np.zeros_like(at)
        turn = (at - low) % (2 * (high - low))
        mirrored = low + np.minimum(turn, 2 * (high - low) - turn)
        return np.where(outside, mirrored, at)
