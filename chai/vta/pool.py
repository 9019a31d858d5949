"""MAX pooling on VTA, with Caffe's clipped windows.

Inputs reach ACC by a GEMM with the identity matrix; the border of a tile gets -128 there, since a LOAD pads with zeros. One
ALU instruction takes the maxima: its loops are the window's rows and columns. With a stride of 1 maxima of rows, then of
columns are fewer: each pixel becomes the larger of two neighbours, once for each further row or column of the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div, round_up
from .conv import INPUTS, OutputTile, Plane, under
from .emit import GemmPass, Group, MicroOps
from .isa import BLOCK, Alu, AluOperation, Gemm, Instruction, Load, Memory, MicroOp, Store
from .loops import FORGET

LOWEST = -128
RESULTS = 512  # accumulators of each of the two parts of ACC for maxima
PIXELS = 2 * RESULTS  # the first of those that hold inputs
AREA = 880  # of them at most


@dataclass
class Maximum:
    """Lowers one pooling."""

    source: Plane
    target: Plane
    window: Window
    micro_ops: MicroOps

    def groups(self) -> Iterator[Group]:
        """Yield the groups of positions in order: one block of channels each."""
        tile, blocks = self._tile(), range(ceil_div(self.source.channels, BLOCK))
        places = product(range(self.source.batch), blocks, *tile.starts(self.target))
        return (self._group(tile, place, number % 2) for number, place in enumerate(places))

    def _tile(self) -> OutputTile:
        """Return the largest tile: of whole rows, if one fits."""
        rows, columns = ([ceil_div(size, n) for n in range(1, size + 1)] for size in self.target[-2:])
        tiles = (OutputTile.over(self.window, h, w) for w in columns for h in rows)
        fitting = (t for t in tiles if t.positions <= RESULTS and round_up(t.area, FORGET) <= AREA)
        return next(fitting)  # one position fits

    def _group(self, tile: OutputTile, place: tuple[int, int, int, int], half: int) -> Group:
        """Return the maxima of a tile; ``place`` is (image, block, first row, first column)."""
        micro_ops = self.micro_ops
        dst, inp, area = half * RESULTS, half * INPUTS, round_up(tile.area, FORGET)
        load = under(self.source, self.window, tile, place, inp)
        identity = micro_ops.constants.load(Memory.WGT, half, np.eye(BLOCK, dtype=np.int8))
        copy = micro_ops.table(MicroOp(PIXELS + i, inp + i, half) for i in range(FORGET))
        gemm = Gemm(*copy, area // FORGET, 1, FORGET, 0, FORGET)
        before: list[Instruction] = [micro_ops.clear(PIXELS, area), *_border(micro_ops, load, tile)]
        before += [micro_ops.clear(dst, tile.positions), micro_ops.apply(AluOperation.ADD, dst, tile.positions, LOWEST)]
        sh, sw = self.window.stride
        table = micro_ops.table(MicroOp(dst + i, PIXELS + pixel) for i, pixel in enumerate(tile.pixels((sh, sw))))
        (kh, kw), every = self.window.kernel, tile.rows * tile.columns
        # each makes a pixel the larger of itself and the one ``step`` after it, which is still as it was; pixels beyond
        # the last window become garbage, as those that they are compared with
        steps = [tile.width] * (kh - 1) + [1] * (kw - 1)
        apart = [micro_ops.combine(AluOperation.MAX, PIXELS, area, PIXELS + step) for step in steps]
        if (sh, sw) == (1, 1) and len(apart) * area + every < kh * kw * every and area + tile.width <= PIXELS:
            maxima = [*apart, Alu(AluOperation.MAX, *table, None)]
        else:
            maxima = [Alu(AluOperation.MAX, *table, None, kh, kw, 0, 0, tile.width, 1)]
        store = Store(dst, self.target.entry(*place), tile.rows, tile.columns, self.target.width)
        return Group(before, [GemmPass([load, identity], [gemm])], maxima, [store])


def _border(micro_ops: MicroOps, load: Load, tile: OutputTile) -> Iterator[Alu]:
    """Yield what sets the padding of a tile to -128: rows above and below, then the columns beside all rows.

    Its micro-ops are one row or column each, not one per pixel: wide padding would fill UOP.
    """
    rows = [*range(load.top), *range(load.top + load.rows, tile.height)]
    columns = [*range(load.left), *range(load.left + load.columns, tile.width)]
    for starts, length, step in (
        ([row * tile.width for row in rows], tile.width, 1),
        (columns, tile.height, tile.width),
    ):
        if starts:
            table = micro_ops.table(MicroOp(PIXELS + start) for start in starts)
            yield Alu(AluOperation.MIN, *table, LOWEST, length, 1, step)
