"""Squares of pixels that become channels, and channels that become squares.

DepthToSpace: groups of channels become blocks of pixels.
Reorg: squares of pixels become channels, in Darknet's order.
"""

from __future__ import annotations

from itertools import product

from ..blob import Array, Shape, show
from ..graph import Arithmetic
from ..graph.params import MessageFields, size
from ..overlay import Overlay
from ..tasks import Task
from ..tasks.copy import Copy, Fold
from ..util.lazy_numpy import np
from ._pick import channels_refused, pick_channels, pick_place, picks, stepping, writing
from ._squares import SquaresLayer, in_squares
from ._window import conv_refused


class DepthToSpace(SquaresLayer):
    """With block b, pixel (i, j) of a block of channel d comes from channel (i * b + j) * D + d of D * b * b.

    CRD: from channel (d * b + i) * b + j, as in PyTorch's PixelShuffle.
    """

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    keeps_format = True

    class Params(MessageFields):
        """block_size is the side of a block; data_format is NHWC, NCHW or DCR, which mean the same, or CRD."""

        block_size: int | None = size()
        data_format: str = "NHWC"

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, *size = self.spatial(bottoms[0])
        b, form = self.params.block_size, self.params.data_format
        if b is None:
            raise self.wrong("block_size is missing")
        if form not in ("NHWC", "NCHW", "DCR", "CRD"):
            raise self.wrong(f"data_format {form!r}; expected NHWC, NCHW, DCR or CRD")
        h, w, c = size if form == "NHWC" else (*size[1:], size[0])
        if c % (b * b):
            raise self.wrong(f"the {c} channels of {show(bottoms[0])} cannot be made into blocks of {b}x{b}")
        top = h * b, w * b, c // (b * b)
        return ((n, *top) if form == "NHWC" else (n, top[2], *top[:2]),)

    @property
    def squares(self) -> tuple[int, bool] | str:
        if self.params.data_format == "NHWC":
            return "its channels are the last axis"
        return self.params.block_size, self.params.data_format == "CRD"

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, b = bottoms[0], self.params.block_size
        if self.params.data_format == "NHWC":
            n, h, w, c = x.shape
            pixels = x.reshape(n, h, w, b, b, c // (b * b)).transpose(0, 1, 3, 2, 4, 5)
            return (pixels.reshape(self.shapes(x.shape)[0]),)
        return (in_squares(x, b, outer=self.params.data_format == "CRD"),)


class Reorg(SquaresLayer):
    """(N, C, H, W) to (N, C * s * s, H / s, W / s); reverse: (N, C / (s * s), H * s, W * s).

    Darknet's order differs from space-to-depth: the map is reshaped to C / (s * s) channels of (H * s, W * s); pixel (i, j)
    of each square goes to the C / (s * s) channels from (i * s + j) * C / (s * s) of a blob (C, H, W), which is reshaped to
    the top. (The fork swaps height and width; its maps are square.)
    """

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    keeps_format = True

    class Params(MessageFields):
        """The side of the squares; reverse makes squares of channels."""

        stride: int | None = size()
        reverse: bool = False

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        n, c, h, w = self.spatial(bottoms[0])
        s = self.params.stride
        if s is None:
            raise self.wrong("stride is missing")
        if c % (s * s) or (not self.params.reverse and (h % s or w % s)):
            raise self.wrong(f"{show(bottoms[0])} cannot be divided by stride {s}")
        return ((n, c // (s * s), h * s, w * s) if self.params.reverse else (n, c * s * s, h // s, w // s),)

    @property
    def squares(self) -> tuple[int, bool]:
        return self.params.stride, False

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if self.params.reverse:
            return super().unsupported(overlay, *bottoms)
        n, c, h, w = bottoms[0]
        s, top, word = self.params.stride, self.shapes(bottoms[0])[0], overlay.layout.channels_per_word
        if not picks(overlay):
            return self.without_unit
        if c // (s * s) % word:
            return f"its larger map has {c // (s * s)} channels, no multiple of the {word} in a word"
        large = n, c // (s * s), h * s, w * s
        return (
            self.beyond(overlay, "copy", fold=True, size=max(large[2:]), channels=top[1])
            or channels_refused(self, overlay, bottoms[0], c)
            or conv_refused(self, overlay, stepping(s), (large[1], large[1]), large)
            or channels_refused(self, overlay, top, top[1])
        )

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return the Tasks of both reshapings, before and after those that pick the pixels of each place in the squares.

        In an overlay's memory a map is another one, if the words of channels that become a larger plane follow each other.
        """
        if self.params.reverse:
            return super().lower(target)
        bottom, s, word = self.bottoms[0], self.params.stride, target.overlay.layout.channels_per_word
        n, c, h, w = target.shapes[bottom]

        def blob(what: str, *shape: int) -> str:
            return target.blob_between(self.tops[0], what, (n, *shape), target.formats[bottom])

        def fold(source: str, map: str) -> Task:
            _, *out = target.shapes[map]
            return Copy((source,), map, self.origin, 0, None, fold=Fold(word, (out[0], out[1], out[2])))

        channels, area = c // (s * s), s * s
        words, large, all_places = blob("words", c, h, w), blob("map", channels, h * s, w * s), blob("places", c, h, w)
        rows = blob("rows", c * area, h // s, w // s)
        work = [pick_channels(self, target, bottom, words, _folded(channels, area, word)), fold(words, large)]
        joins = list[Task]()
        for i, (row, column) in enumerate(product(range(s), repeat=2)):
            part = blob(f"place {row} {column}", channels, h, w)
            work.append(pick_place(self, target, (large, part), stepping(s), (row, column)))
            joins.append(target.copy(writing(self, all_places), part, i * channels))
        back = np.argsort(_folded(c, area, word))
        return [*work, *joins, fold(all_places, rows), pick_channels(self, target, rows, self.tops[0], back)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x, s = bottoms[0], self.params.stride
        if self.params.reverse:
            return (in_squares(x, s, outer=False),)
        n, c, h, w = x.shape
        y = x.reshape(n, c // (s * s), h, s, w, s).transpose(0, 3, 5, 1, 2, 4)
        return (y.reshape(self.shapes(x.shape)[0]),)


def _folded(channels: int, area: int, word: int) -> Array:
    """Return the order of channels in which words of ``area`` neighbours follow each other, as those of one larger map do."""
    return np.arange(channels * area).reshape(channels // word, word, area).transpose(0, 2, 1).reshape(-1)
