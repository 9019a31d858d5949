"""Maps with a border, or without one.

Crop: a window of the first bottom with the second's size in all axes from ``axis``.
Pad: a blob with a border.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields, axis_index, choice, margin, within
from ..overlay import Overlay
from ..tasks import Task
from ..text import number_of
from ..util.lazy_numpy import np
from ._pick import Sides, border_refused, pick_pixels, picks


class Crop(Layer):
    """Only the size of the second bottom is used."""

    bottoms_allowed = (2, 2)
    follows = True

    class Params(MessageFields):
        """offset: the start of the window, one value for all cropped axes or one each."""

        axis: int = axis_index(2)
        offset: tuple[int, ...] = within(0, 2**31 - 1, ())

    def window(self, bottom: Shape, like: Shape) -> tuple[slice, ...]:
        """Return the part of each axis of the bottom that is kept. Raises ShapeError."""
        first = self.axis(self.params.axis, bottom)
        offset = self.params.offset
        if len(like) != len(bottom):
            raise self.wrong(
                f"bottoms of {len(bottom)} and {number_of(len(like), 'axis')}: {show(bottom)}, {show(like)}"
            )
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


class Pad(Layer):
    """Every axis grows by its two paddings."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    follows = True

    class Params(MessageFields):
        """paddings: before and after axis 0, before and after axis 1, ...; chai_mode: what is there instead of a constant."""

        paddings: tuple[int, ...] = margin(())
        constant_values: float = 0.0
        chai_mode: str = choice("CONSTANT", "REFLECT", "EDGE", "WRAP", default="CONSTANT")

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        paddings = self.params.paddings
        return list(zip(paddings[::2], paddings[1::2]))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, paddings = bottoms[0], self.params.paddings
        if len(paddings) != 2 * len(shape):
            raise self.wrong(f"{len(paddings)} paddings for {show(shape)}; expected two for each axis")
        for size, pair in zip(shape, self._pairs):
            most = {"REFLECT": size - 1, "WRAP": size}.get(self.params.chai_mode, max(pair))
            if max(pair) > most:
                raise self.wrong(
                    f"a padding of {max(pair)} of an axis of {size}; {self.params.chai_mode} has {most} at most"
                )
        return (tuple(d + before + after for d, (before, after) in zip(shape, self._pairs)),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if not picks(overlay):
            return self.without_unit
        p = self.params
        if len(bottoms[0]) != 4 or p.chai_mode != "CONSTANT" or p.constant_values or any(p.paddings[:4]):
            return "it does more than zeros around rows and columns"
        return border_refused(self, overlay, bottoms[0], (self._pairs[2], self._pairs[3]))

    def lower(self, target: Arithmetic) -> list[Task]:
        return [pick_pixels(self, target, (self._pairs[2], self._pairs[3]))]

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return all(bottoms) and self.params.constant_values >= 0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p, x = self.params, bottoms[0]
        pairs = self._pairs or 0  # numpy takes no list of none
        if p.chai_mode == "CONSTANT":
            return (np.pad(x, pairs, constant_values=np.float32(p.constant_values)),)
        return (np.pad(x, pairs, mode=p.chai_mode.lower()),)
