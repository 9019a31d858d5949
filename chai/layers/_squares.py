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
    def keeps_format(self) -> bool:
        return True

    def squares(self, bottom: Shape) -> Array | str:
        """Return the bottom's channels (rows, columns, channels of the top), int; or why it does something else."""
        raise NotImplementedError(self.type)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        channels = self.squares(bottoms[0])
        if isinstance(channels, str) or not picks(overlay):
            return channels if isinstance(channels, str) else self.without_unit
        rows, columns, outputs = channels.shape
        squares = Squares(self, overlay, outputs, (rows, columns))
        if not squares.refused(self, overlay, bottoms[0]):
            return channels_refused(self, overlay, bottoms[0], squares.total)
        n, c, height, width = bottoms[0]
        spread = n, c, height * rows, width * columns
        sizes = {"factor": max(rows, columns), "size": max(spread[2:]), "channels": c}
        reason = self.beyond(overlay, "upsample", **sizes) or too_many_rows(overlay, c, height)
        return reason or conv_refused(self, overlay, _spread_window(rows, columns), (outputs, 1), spread)

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return the Tasks that interleave the bottom, after one that puts its channels in order unless they are.

        Where the overlay cannot interleave the squares, zeros are put between the bottom's pixels, and a convolution with a
        single 1 for each channel of the top picks its pixels.
        """
        bottom, top = self.bottoms[0], self.tops[0]
        channels = self.squares(target.shapes[bottom])
        assert not isinstance(channels, str)
        rows, columns, outputs = channels.shape
        n, c, height, width = target.shapes[bottom]
        squares = Squares(self, target.overlay, outputs, (rows, columns))
        if squares.refused(self, target.overlay, target.shapes[bottom]):
            spread = target.blob_between(top, "spread", (n, c, height * rows, width * columns), target.formats[bottom])
            taps = np.zeros((outputs, c, 2 * rows - 1, 2 * columns - 1), np.int8)
            for i, j, channel in np.ndindex(channels.shape):
                taps[channel, channels[i, j, channel], rows - 1 - i, columns - 1 - j] = 1
            work = target.upsample(self, spread, (rows, columns), spread=True)
            return [work, target.pick(self, spread, top, taps, _spread_window(rows, columns), 1)]
        order = np.zeros(squares.total, np.intp)  # channels between two parts are not read
        for part, place in enumerate(squares.places()):
            order[part * squares.apart : part * squares.apart + outputs] = channels[place]
        if np.array_equal(order, np.arange(c)) and target.formats[bottom] == target.formats[top]:
            return [*squares.interleave(self, target, bottom)]
        parts = target.blob_between(top, "parts", (n, squares.total, height, width), target.formats[top])
        return [pick_channels(self, target, bottom, parts, order), *squares.interleave(self, target, parts)]


def in_order(rows: int, columns: int, channels: int, *, outer: bool) -> Array:
    """Return channels as ``SquaresLayer.squares`` does: those of a pixel side by side, or if ``outer`` those of a channel."""
    count = np.arange(rows * columns * channels)
    if outer:
        return count.reshape(channels, rows, columns).transpose(1, 2, 0)
    return count.reshape(rows, columns, channels)


def _spread_window(rows: int, columns: int) -> Window:
    """Return the window whose taps see the one pixel of each square, from every pixel of it."""
    return Window((2 * rows - 1, 2 * columns - 1), (1, 1), (rows - 1, columns - 1))
