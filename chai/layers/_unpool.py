"""Pixels moved back to the places of a pooling's maxima, which an overlay finds again by comparing codes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from ..blob import Array, Shape
from ..fixed import Format, Requantization
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.eltwise import Eltwise, EltwiseLimits
from ..tasks.unsupported import Unsupported
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ._pick import Sides, border_refused, pick_pixels, pick_place, picks, writing
from ._squares import Squares
from ._window import conv_refused
from .pooling import Pooling
from .repeat import Upsample

Pair = tuple[str, str]
SIDE = 2  # of the windows that an overlay takes apart
BIT = Format("Xilinx", 8, 127.0)  # of blobs whose codes are 0 and 1, as their values


class MaxUnpool(Layer):
    """An Upsample whose second bottom a Pooling wrote: it reads the Pooling's bottom and first top instead.

    On an overlay, of the pixels of a window that equal its maximum the first one gets the value, as in Caffe.
    """

    bottoms_allowed = (3, 3)

    class Params(MessageFields):
        upsample: Upsample.Params
        pooling: Pooling.Params

    @classmethod
    def of(cls, upsample: Upsample, pooling: Pooling) -> MaxUnpool:
        """Return the layer for an Upsample and the Pooling that wrote its second bottom."""
        bottoms = upsample.bottoms[0], pooling.bottoms[0], pooling.tops[0]
        params = cls.Params(upsample.params, pooling.params)
        layer = cls(upsample.name, bottoms, upsample.tops, params, type=upsample.type)
        layer.origin, layer.precision, layer.place = upsample.origin, upsample.precision, upsample.place
        layer.whole_windows = pooling.whole_windows
        return layer

    @property
    def upsample(self) -> Upsample:
        """Return the Upsample, whose second bottom has no name."""
        layer = Upsample(self.name, (self.bottoms[0], ""), self.tops, self.params.upsample)
        layer.place = self.place
        return layer

    @property
    def pooling(self) -> Pooling:
        """Return the Pooling, whose second top has no name."""
        layer = Pooling(self.name, (self.bottoms[1],), (self.bottoms[2], ""), self.params.pooling)
        layer.whole_windows = self.whole_windows
        return layer

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return self.upsample.shapes(bottoms[0], bottoms[2])

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return self.upsample.forward(bottoms[0], self.pooling.forward(bottoms[1])[1])

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return bottoms[0]

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        x, whole, _ = bottoms
        if not picks(overlay):
            return self.without_unit
        if self.pooling.window(whole) != _window() or self.shapes(*bottoms)[0] != whole or whole[3] % SIDE:
            return f"the pooling's windows are not squares of {SIDE}x{SIDE} that cover its bottom"
        limits = overlay.limits("eltwise", EltwiseLimits)
        if limits is None or not limits.lookup or not {"SUM", "PROD"}.issubset(limits.operations):
            return "the overlay has no product, no sum, or no tables of codes"
        squares = Squares(self, overlay, x[1], (SIDE, SIDE))
        reason = squares.refused(self, overlay, x) or conv_refused(
            self, overlay, _window(whole[2]), (x[1], x[1]), whole
        )
        return reason or border_refused(self, overlay, (*x[:2], SIDE * x[2], SIDE * x[3]), _cut(whole[2]))

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return, for each place in a window: its pixels, where they are the first maximum, and the product with the bottom.

        The second row of the last windows may be beyond the bottom: its maximum is in the first row then, so no place there is
        the first, and the row is cut off at the end.
        """
        x, whole, pooled = self.bottoms
        if target.formats[whole] != target.formats[pooled]:
            raise Unsupported("the maxima have another format than the pooling's bottom")
        top, shape = self.tops[0], target.shapes[x]
        squares, height = Squares(self, target.overlay, shape[1], (SIDE, SIDE)), target.shapes[whole][2]
        window = _window(height)
        work, joins, taken = list[Task](), list[Task](), ""
        parts = target.blob_between(top, "parts", (shape[0], squares.total, *shape[2:]), target.formats[top])
        for i, (row, column) in enumerate(squares.places()):

            def blob(what: str, format: Format, place: int = i) -> str:
                return target.blob_between(top, f"{what} {place}", shape, format)

            pixels, equal = blob("pixels", target.formats[whole]), blob("equal", BIT)
            work.append(pick_place(self, target, (whole, pixels), window, (window.pad[0] + row, column)))
            work.append(self._where(target, (pixels, pooled), (1, -1), equal, slice(0, 1)))
            here = equal
            if taken:
                here, both = blob("first", BIT), blob("taken", BIT)
                work.append(self._where(target, (equal, taken), (2, 1), here, slice(2, 3)))
                work.append(self._where(target, (equal, taken), (1, 1), both, slice(1, 3)))
                equal = both
            taken, part = equal, blob("part", target.formats[top])
            work.append(Eltwise.of_blobs((x, here), part, self.origin, "PROD", target))
            joins.append(target.copy(writing(self, parts), part, i * squares.apart))
        cut = _cut(height)
        if not any(cut[0]):
            return [*work, *joins, *squares.interleave(self, target, parts)]
        size = (*shape[:2], SIDE * shape[2], SIDE * shape[3])
        between, last = copy(self), copy(self)
        between.tops = last.bottoms = (target.blob_between(top, "squares", size, target.formats[top]),)
        return [*work, *joins, *squares.interleave(between, target, parts), pick_pixels(last, target, cut)]

    def _where(self, target: Arithmetic, inputs: Pair, factors: tuple[int, int], output: str, sums: slice) -> Task:
        """Return what writes 1 where the sum of two blobs' codes, each times its factor, is one of ``sums``, else 0."""
        zeros = target.formats[inputs[0]].zero, target.formats[inputs[1]].zero
        table = np.zeros(256, np.int8)
        table[128 + sums.start : 128 + sums.stop] = 1
        as_it_is = Requantization(np.array(1), 0, -128, 127)
        return Eltwise(inputs, output, self.origin, factors, None, as_it_is, zeros, lookup=table)


def _window(height: int = 0) -> Window:
    """Return the window of the pooling; for a bottom with an odd height the one that sees a row beyond its end, too."""
    more = height % SIDE
    return Window((SIDE + more, SIDE), (SIDE, SIDE), (more, 0))


def _cut(height: int) -> Sides:
    """Return the rows to remove from whole squares for a bottom of this height."""
    return (0, -(height % SIDE)), (0, 0)
