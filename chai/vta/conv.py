"""Convolutions on VTA: tiles of positions, one GEMM per block of outputs and part of the inputs.

A tile's inputs lie in one part of INP, block by block, with their padding. The micro-ops of a GEMM are the positions for
each block of inputs, its loops are the window's rows and columns. Groups are blocks of weights that are not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from ..blob import Array
from ..tasks.fields import StridedBlob
from ..tasks.window import Window
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div, round_up
from .emit import GemmPass, Group, MicroOps
from .isa import BLOCK, Gemm, Load, Memory, MicroOp, Store
from .loops import FORGET
from .requantize import Runs, Shift, begin, end

# entries of each of the two parts of INP and WGT; UOP must hold the micro-ops for all of them
INPUTS, WEIGHTS = 944, 504
PART = 960  # entries from one part of INP to the other: a run of 16 may end in the gap, which nothing loads
SUMS = 640  # accumulators of each of the two parts of ACC
SPARE = 2 * SUMS  # a third one, which is never stored
FIXED = 3 * SUMS  # constants, in two parts
START = 30  # cycles that an instruction takes to begin, for the choice of tiles
MOST_GROUPS = 16  # blocks of outputs at a time: 4 constants each, 64 entries in each part


class Plane(StridedBlob):
    """A blob in DRAM."""

    def entry(self, image: int, block: int, y: int = 0, x: int = 0) -> int:
        """Return the number of a word of 16 channels."""
        place = self.address + image * self.image + block * self.pitch
        return place // BLOCK + y * self.width + x


class OutputTile(NamedTuple):
    """Output positions of a tile, and the pixels under their windows."""

    rows: int
    columns: int
    height: int
    width: int

    @property
    def positions(self) -> int:
        """Return its positions, in whole runs of 16."""
        return round_up(self.rows * self.columns, FORGET)

    @property
    def area(self) -> int:
        return self.height * self.width

    def starts(self, target: Plane) -> tuple[list[int], list[int]]:
        """Return the first rows and the first columns of the tiles that cover a blob."""
        return starts(target.height, self.rows), starts(target.width, self.columns)

    @classmethod
    def over(cls, window: Window, rows: int, columns: int) -> OutputTile:
        """Return the tile of ``rows`` x ``columns`` positions of a window."""
        (kh, kw), (sh, sw) = window.kernel, window.stride
        return cls(rows, columns, (rows - 1) * sh + kh, (columns - 1) * sw + kw)

    def pixels(self, stride: tuple[int, int]) -> list[int]:
        """Return the first pixel under the window at each position; more, which are not stored, complete a run of 16."""
        pixels = [y * stride[0] * self.width + x * stride[1] for y in range(self.rows) for x in range(self.columns)]
        return pixels + pixels[:1] * (FORGET - len(pixels))


class Family(NamedTuple):
    """Blocks of outputs that read the same blocks of inputs."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]


@dataclass
class ConvolutionLowering:
    """Lowers one convolution; ``weights`` int8 (M, C/group, kh, kw), ``bias`` int64 (M,)."""

    source: Plane
    target: Plane
    weights: Array
    bias: Array
    window: Window
    group: int
    shift: Shift
    micro_ops: MicroOps
    packed: dict[tuple[int, ...], Load] = field(default_factory=dict)

    def groups(self) -> Iterator[Group]:
        self.loaded_inputs = self.passed = self.done = 0
        for family in self._families():
            tile = self._tile(family)
            for place in product(range(self.source.batch), *tile.starts(self.target)):
                yield from self._of_tile(family, tile, place)

    def _families(self) -> list[Family]:
        """Return which blocks of outputs read which blocks of inputs."""
        m, per = self.weights.shape[:2]
        each = m // self.group
        families: dict[tuple[int, ...], list[int]] = {}
        for block in range(ceil_div(m, BLOCK)):
            channels = range(block * BLOCK, min((block + 1) * BLOCK, m))
            first, last = channels[0] // each * per, (channels[-1] // each + 1) * per
            families.setdefault((*range(first // BLOCK, ceil_div(last, BLOCK)),), []).append(block)
        return [Family((*outputs,), inputs) for inputs, outputs in families.items()]

    # -- tiles

    def _tile(self, family: Family) -> OutputTile:
        """Return the tile with the fewest modelled cycles, by computing or by moving."""
        heights, widths = ({ceil_div(size, n) for n in range(1, size + 1)} for size in self.target[-2:])
        every = (OutputTile.over(self.window, h, w) for w in sorted(widths) for h in sorted(heights))
        tiles = {self._cost(family, t): t for t in every if t.positions <= SUMS and t.area <= INPUTS}
        return tiles[min(tiles)]

    def _cost(self, family: Family, tile: OutputTile) -> tuple[float, int]:
        """Estimate the cycles of an image, by computing or by moving: (cycles, - positions of a tile)."""
        blocks, outputs, taps = len(family.inputs), len(family.outputs), self.taps
        share, chunk, several = self._split(family, tile)
        parts = ceil_div(blocks, share)
        groups, passes = ceil_div(outputs, several), parts * ceil_div(share, chunk)
        positions = tile.positions if self._flat(tile) else max(FORGET, tile.rows * tile.columns)
        gemm = outputs * blocks * taps * positions + START * groups * passes
        alu = outputs * tile.positions * (17 if self.shift.spare else 9) + 6 * START * groups
        inputs = blocks * tile.area * 2 + START * (parts if self._flat(tile) else blocks)
        weights = outputs * blocks * taps * 32 + START * groups * passes
        moving = inputs * (groups if parts > 1 else 1) + weights + 2 * outputs * tile.positions
        waiting = max(0.0, inputs / parts - 2 * (gemm + alu) / (groups * passes))  # for the first inputs of a tile
        tiles = ceil_div(self.target.height, tile.rows) * ceil_div(self.target.width, tile.columns)
        return tiles * (max(gemm + alu, moving) + waiting), -tile.positions

    def _flat(self, tile: OutputTile) -> bool:
        """Return whether a tile's pixels are its positions, and lie in memory one after the other."""
        same = self.window.kernel == self.window.stride == (1, 1)
        return same and tile.columns == self.source.width

    @property
    def taps(self) -> int:
        """Return the pixels of a window."""
        return self.window.kernel[0] * self.window.kernel[1]

    def _split(self, family: Family, tile: OutputTile) -> tuple[int, int, int]:
        """Return how many blocks of inputs are in INP and in WGT, and how many blocks of outputs are computed, at a time.

        Several outputs are if a window is one pixel, whose loops are free.
        """
        blocks = len(family.inputs)
        share = min(blocks, max(1, INPUTS // max(tile.area, tile.positions)))
        chunk = min(share, WEIGHTS // self.taps)
        if self.taps > 1:
            return share, chunk, 1
        most = min(SUMS // tile.positions, WEIGHTS // chunk, MOST_GROUPS, len(family.outputs))
        if share == blocks:  # inputs stay: only short runs need company
            most = min(most, ceil_div(64, tile.positions))
        return share, chunk, max(1, most)

    # -- one tile

    def _of_tile(self, family: Family, tile: OutputTile, place: tuple[int, int, int]) -> Iterator[Group]:
        """Yield the groups of a tile; ``place`` is (image, first row, first column)."""
        image, top, left = place
        share, chunk, several = self._split(family, tile)
        parts = [family.inputs[i : i + share] for i in range(0, len(family.inputs), share)]
        held: Sequence[int] = ()
        for start in range(0, len(family.outputs), several):
            outputs = family.outputs[start : start + several]
            half = self.done % 2
            dst = half * SUMS
            sums = Runs(dst, tile.positions, len(outputs), FIXED + half * 64)
            before = begin(self.micro_ops, self.shift, self.bias, outputs[0], sums)
            passes = []
            for part in parts:
                for at in range(0, len(part), chunk):
                    blocks = part[at : at + chunk]
                    loads = []
                    if part != held:
                        held = part
                        self.loaded_inputs += 1
                        slot = self.loaded_inputs % 2 * PART
                        loads += self._inputs(tile, part, place, slot)
                    inp = self.loaded_inputs % 2 * PART + at * tile.area
                    first = MicroOp(dst, inp, self.passed % 2 * WEIGHTS)
                    self.passed += 1
                    loads.append(self._weights(outputs, blocks, first.wgt))
                    passes.append(GemmPass(loads, [self._gemm(tile, first, len(blocks), len(outputs))]))
            after = end(self.micro_ops, self.shift, sums, SPARE)
            words = [self.target.entry(image, block, top, left) for block in outputs]
            size = tile.rows, tile.columns, self.target.width
            stores = [Store(dst + i * sums.size, word, *size) for i, word in enumerate(words)]
            self.done += 1
            yield Group(before, passes, after, stores)

    def _inputs(self, tile: OutputTile, blocks: Sequence[int], place: tuple[int, int, int], entry: int) -> list[Load]:
        """Return the LOADs of the pixels under a tile; ``place`` is (image, first row, first column)."""
        image, top, left = place
        if self._flat(tile):  # each row of the LOAD is a block
            first = self.source.entry(image, blocks[0], top, left)
            return [Load(Memory.INP, entry, first, len(blocks), tile.area, self.source.pitch // BLOCK)]
        wheres = [(image, block, top, left) for block in blocks]
        return [under(self.source, self.window, tile, where, entry + i * tile.area) for i, where in enumerate(wheres)]

    def _weights(self, outputs: Sequence[int], blocks: Sequence[int], entry: int) -> Load:
        """Return the LOAD of weights by output block, input block and tap: [16 out][16 in] each."""
        key = *outputs, -1, *blocks
        if key not in self.packed:
            weights = np.stack([np.stack([self._block(o, b) for b in blocks]) for o in outputs])
            self.packed[key] = self.micro_ops.constants.load(Memory.WGT, 0, weights)
        return self.packed[key]._replace(entry=entry)

    def _block(self, output: int, block: int) -> Array:
        """Return the weights from a block of inputs to a block of outputs: int8 (taps, 16 out, 16 in), zeros between groups."""
        m, per, *kernel = self.weights.shape
        each = m // self.group
        weights = np.zeros((BLOCK, BLOCK, *kernel), np.int8)
        outs = np.arange(output * BLOCK, min((output + 1) * BLOCK, m))
        for group in np.unique(outs // each):
            rows = outs[outs // each == group]
            first, last = max(group * per, block * BLOCK), min((group + 1) * per, (block + 1) * BLOCK)
            if first < last:
                part = self.weights[rows, first - group * per : last - group * per]
                weights[rows - output * BLOCK, first - block * BLOCK : last - block * BLOCK] = part
        return weights.transpose(2, 3, 0, 1).reshape(-1, BLOCK, BLOCK)

    def _gemm(self, tile: OutputTile, first: MicroOp, blocks: int, several: int) -> Gemm:
        """Return the product of ``blocks`` blocks of inputs and weights; ``first`` is the first entry of each memory."""
        dst, inp, wgt = first
        (kh, kw), (sh, sw), count = self.window.kernel, self.window.stride, tile.positions
        if self.taps == sh == sw == 1:  # the loops are free: one is for runs of 16 positions
            table = self.micro_ops.table(
                MicroOp(dst + i, inp + b * tile.area + i, wgt + b) for b in range(blocks) for i in range(FORGET)
            )
            return Gemm(*table, several, count // FORGET, count, FORGET, 0, FORGET, blocks, 0)
        table = self.micro_ops.table(
            MicroOp(dst + i, inp + b * tile.area + pixel, wgt + b * self.taps)
            for b in range(blocks)
            for i, pixel in enumerate(tile.pixels((sh, sw)))
        )
        if self.taps == 1:
            return Gemm(*table, several, 1, count, 0, 0, 0, blocks, 0)
        return Gemm(*table, kh, kw, 0, 0, tile.width, 1, kw, 1)


def under(source: Plane, window: Window, tile: OutputTile, place: tuple[int, int, int, int], entry: int) -> Load:
    """Return the LOAD of the pixels under a tile, with their padding; ``place`` is (image, block, first row, first column)."""
    image, block, top, left = place
    y, x = top * window.stride[0] - window.pad[0], left * window.stride[1] - window.pad[1]
    above, before = max(0, -y), max(0, -x)
    rows = min(source.height, y + tile.height) - max(0, y)
    columns = min(source.width, x + tile.width) - max(0, x)
    below, after = tile.height - above - rows, tile.width - before - columns
    first = source.entry(image, block, max(0, y), max(0, x))
    return Load(Memory.INP, entry, first, rows, columns, source.width, above, below, before, after)


def starts(length: int, size: int) -> list[int]:
    """Return where the pieces of a length begin: all are of one size, so the last may begin in the one before."""
    return [min(i * size, length - size) for i in range(ceil_div(length, size))]
