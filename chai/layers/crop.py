"""Crop: a window of the first bottom with the second's size in all axes from ``axis``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import axis_index, within
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from ._pick import Sides, border_refused, pick_pixels, picks


class Crop(Layer):
    """Only the size of the second bottom is used."""

    bottoms_allowed = (2, 2)
    follows = True

    @dataclass(frozen=True)
    class Params:
        """offset: the start of the window, one value for all cropped axes or one each."""

        axis: int = axis_index(2)
        offset: tuple[int, ...] = within(0, 2**31 - 1, ())

    def window(self, bottom: Shape, like: Shape) -> tuple[slice, ...]:
        """Return the part of each axis of the bottom that is kept. Raises ShapeError."""
        first = self.axis(self.params.axis, bottom)
        offset = self.params.offset
        if len(like) != len(bottom):
            raise self.wrong(f"bottoms of {len(bottom)} and {len(like)} axes: {show(bottom)}, {show(like)}")
        axes = len(bottom) - first
        if len(offset) > 1 and len(offset) != axes:
            raise self.wrong(f"{len(offset)} offsets for {axes} cropped axes")
        starts = offset if len(offset) == axes else (offset or (0,)) * axes
        for i, start in enumerate(starts, first):
            if start + like[i] > bottom[i]:
                raise self.wrong(
                    f"axis {i}: {like[i]} elements from {start} on, but the bottom {show(bottom)} has {bottom[i]}"
                )
        return (*map(slice, (0,) * first, bottom), *(slice(s, s + like[i]) for i, s in enumerate(starts, first)))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (tuple(part.stop - part.start for part in self.window(*bottoms)),)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self.shapes(*bottoms)[0][:1] != bottoms[0][:1]

    def _sides(self, bottom: Shape, like: Shape) -> Sides:
        """Return the rows and columns that are removed, as numbers below 0."""
        parts = zip(self.window(bottom, like)[2:], bottom[2:])
        rows, columns = ((-part.start, part.stop - size) for part, size in parts)
        return rows, columns

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if not picks(overlay):
            return self.without_unit
        if len(bottoms[0]) != 4 or self.shapes(*bottoms)[0][:2] != bottoms[0][:2]:
            return "it crops more than rows and columns"
        return border_refused(self, overlay, bottoms[0], self._sides(*bottoms))

    def lower(self, target: Arithmetic) -> list[Task]:
        return [pick_pixels(self, target, self._sides(*(target.shapes[b] for b in self.bottoms)))]

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return bottoms[0]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.ascontiguousarray(bottoms[0][self.window(bottoms[0].shape, bottoms[1].shape)]),)
