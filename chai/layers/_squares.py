"""Maps whose squares of pixels come from parts of a blob's channels, which an overlay interleaves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ..blob import Array, Shape
from ..graph import Arithmetic, Layer
from ..overlay import Overlay
from ..tasks import Task, find
from ..tasks.interleave import COLUMNS
from ..tasks.upsample import too_many_rows
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ._pick import channels_refused, pick_channels, picks
from ._window import conv_refused
from .repeat import upsample_refused


class Squares:
    """The parts of squares of ``rows`` x ``columns`` pixels, of ``channels`` each: blocks of whole words of one blob.

    ``apart``  channels from the first of a part to the first of the next
    ``total``  channels of the blob
    """

    def __init__(self, layer: Layer, overlay: Overlay, channels: int, size: tuple[int, int]) -> None:
        self.rows, self.columns = size
        self.channels = channels
        self.apart = round_up(channels, layer.channel_step(overlay))
        self.total = (self.rows * self.columns - 1) * self.apart + channels

    def places(self) -> Iterator[tuple[int, int]]:
        """Yield row and column in the square of each part, in the order of the parts.

        Each Task but the last doubles the columns, by a bit of their number, the highest first; the last one has all rows.
        """
        bits = self.columns.bit_length() - 1
        for *high, row, low in product(*[range(2)] * (bits - 1), range(self.rows), range(2)):
            yield row, sum(bit << (bits - 1 - at) for at, bit in enumerate(high)) + low

    def refused(self, layer: Layer, overlay: Overlay, bottom: Shape) -> str | None:
        """Return why the overlay cannot interleave the parts, each a map of the bottom's size; None if it can."""
        if not picks(overlay) or find("interleave").limits(overlay) is None:
            return layer.without_unit
        if self.columns < COLUMNS or self.columns & (self.columns - 1):
            return f"squares of {self.columns} columns; the overlay interleaves {COLUMNS} at a time"
        _, _, height, width = bottom
        sizes = {"size": max(height * self.rows, width * self.columns), "channels": self.total}
        reason = layer.beyond(overlay, "interleave", factor=max(self.rows, COLUMNS), **sizes)
        # the first of several Tasks writes half of the parts
        largest = self.channels if self.columns == COLUMNS else self.total - self.rows * self.columns * self.apart // 2
        return reason or too_many_rows(overlay, largest, height)

    def interleave(self, layer: Layer, target: Arithmetic, blob: str) -> Iterator[Task]:
        """Yield the Tasks that make the layer's top of a blob of parts."""
        top = layer.tops[0]
        n, total, height, width = target.shapes[blob]
        columns = self.columns
        while columns > COLUMNS:
            columns //= 2
            apart, width = (total + self.apart - self.channels) // 2, 2 * width
            total -= apart
            between = target.blob_between(top, f"columns of {columns}", (n, total, height, width), target.formats[top])
            yield target.interleave(layer, blob, between, 1, apart)
            blob = between
        yield target.interleave(layer, blob, top, self.rows, self.apart)


class SquaresLayer(Layer):
    """Base of layers that make a square of pixels of channels; the subclass says of which, and that it does no more."""

    follows = True

    @property
    def squares(self) -> tuple[int, bool] | str:
        """Return the side of the squares, and ``outer`` of ``in_squares``; or why it does something else."""
        raise NotImplementedError(self.type)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if isinstance(self.squares, str) or not picks(overlay):
            return self.squares if isinstance(self.squares, str) else self.without_unit
        side, _ = self.squares
        n, c, height, width = bottoms[0]
        outputs = c // side**2
        squares = Squares(self, overlay, outputs, (side, side))
        if not squares.refused(self, overlay, bottoms[0]):
            return channels_refused(self, overlay, bottoms[0], squares.total)
        spread = n, c, height * side, width * side
        reason = upsample_refused(self, overlay, bottoms[0], (side, side))
        return reason or conv_refused(self, overlay, _spread_window(side), (outputs, 1), spread)

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return the Tasks that interleave the bottom, after one that puts its channels in order unless they are.

        Where the overlay cannot interleave the squares, zeros are put between the bottom's pixels, and a convolution with a
        single 1 for each channel of the top picks its pixels.
        """
        bottom, top = self.bottoms[0], self.tops[0]
        assert not isinstance(self.squares, str)
        side, outer = self.squares
        n, c, height, width = target.shapes[bottom]
        # the bottom's channel of each channel of the top, row and column of a square
        channels = in_squares(np.arange(c).reshape(1, c, 1, 1), side, outer=outer)[0]
        outputs = len(channels)
        squares = Squares(self, target.overlay, outputs, (side, side))
        if squares.refused(self, target.overlay, target.shapes[bottom]):
            spread = target.blob_between(top, "spread", (n, c, height * side, width * side), target.formats[bottom])
            taps = np.zeros((outputs, c, 2 * side - 1, 2 * side - 1), np.int8)
            for channel, i, j in np.ndindex(channels.shape):
                taps[channel, channels[channel, i, j], side - 1 - i, side - 1 - j] = 1
            work = target.upsample(self, spread, (side, side), spread=True)
            return [work, target.pick(self, spread, top, taps, _spread_window(side), 1)]
        order = np.zeros(squares.total, np.intp)  # channels between two parts are not read
        for part, (row, column) in enumerate(squares.places()):
            order[part * squares.apart : part * squares.apart + outputs] = channels[:, row, column]
        if np.array_equal(order, np.arange(c)) and target.formats[bottom] == target.formats[top]:
            return [*squares.interleave(self, target, bottom)]
        parts = target.blob_between(top, "parts", (n, squares.total, height, width), target.formats[top])
        return [pick_channels(self, target, bottom, parts, order), *squares.interleave(self, target, parts)]


def in_squares(x: Array, side: int, *, outer: bool) -> Array:
    """Return a map (N, C / side^2, H * side, W * side) whose squares of pixels are channels of x (N, C, H, W).

    Channels of one pixel of the squares are side by side, or if ``outer`` those of one channel of the map.
    """
    n, c, h, w = x.shape
    c //= side**2
    if outer:
        pixels = x.reshape(n, c, side, side, h, w).transpose(0, 1, 4, 2, 5, 3)
    else:
        pixels = x.reshape(n, side, side, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    return pixels.reshape(n, c, h * side, w * side)


def _spread_window(side: int) -> Window:
    """Return the window whose taps see the one pixel of each square, from every pixel of it."""
    return Window((2 * side - 1, 2 * side - 1), (1, 1), (side - 1, side - 1))
