"""Programs as numbers: the bits of instructions by position, with nothing of chai's own tables.

A memory image of 64 KB holds instructions from 0, micro-ops from 0xC00, inputs from 0x1000, accumulators from 0x2000,
weights from 0x4000 and outputs from 0xC000.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

INSTRUCTIONS, UOPS, INPUTS, ACCUMULATORS, WEIGHTS, OUTPUTS, SIZE = 0, 0xC00, 0x1000, 0x2000, 0x4000, 0xC000, 0x10000
UOP, WGT, INP, ACC, OUT = range(5)
MIN, MAX, ADD, SHR = range(4)
DEPTHS = 8192, 1024, 2048, 2048, 2048
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = 1, 2, 4, 8
WIDTH = {"old": 2, "new": 3}  # of the fields that differ
BASES = {UOP: (UOPS, 4), INP: (INPUTS, 16), ACC: (ACCUMULATORS, 64), WGT: (WEIGHTS, 256), OUT: (OUTPUTS, 16)}

Word = tuple[int, int]
FINISH: Word = (3, 0)
TAKE: Word = (0 | POP_NEXT << 3, 0)  # a LOAD UOP of 0 columns that takes the last token of a STORE


class Assembler:
    """Instructions of one encoding; ``dram`` counts entries from the start of the memory's part of the image."""

    def __init__(self, encoding: str) -> None:
        self.encoding, self.k = encoding, WIDTH[encoding]

    def load(
        self,
        memory: int,
        index: int,
        dram: int,
        columns: int,
        rows: int = 1,
        stride: int = 0,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        tokens: int = 0,
    ) -> Word:
        k, (base, size) = self.k, BASES[memory]
        where = base // size + dram
        top, bottom, left, right = pads
        first = 0 | tokens << 3 | memory << 7 | index << 7 + k | where << 23 + k
        return first, rows | columns << 16 | stride << 32 | top << 48 | bottom << 52 | left << 56 | right << 60

    def store(
        self, index: int, dram: int, columns: int, rows: int = 1, stride: int = 0, tokens: int = POP_PREV | PUSH_PREV
    ) -> Word:
        k = self.k
        first = 1 | tokens << 3 | (4 << 7 if k == 3 else 0) | index << 7 + k | OUTPUTS // 16 + dram << 23 + k
        return first, rows | columns << 16 | stride << 32

    def gemm(
        self,
        first: int,
        end: int,
        outer: int = 1,
        inner: int = 1,
        steps: tuple[int, int, int, int, int, int] = (0, 0, 0, 0, 0, 0),
        reset: int = 0,
        tokens: int = 0,
    ) -> Word:
        ao, ai, io, ii, wo, wi = steps
        one = 2 | tokens << 3 | reset << 7 | first << 8 | end << 21 | outer << 35 | inner << 49
        return one, ao | ai << 11 | io << 22 | ii << 33 | wo << 44 | wi << 54

    def alu(
        self,
        operation: int,
        first: int,
        end: int,
        immediate: int | None = None,
        outer: int = 1,
        inner: int = 1,
        steps: tuple[int, int, int, int] = (0, 0, 0, 0),
        tokens: int = 0,
    ) -> Word:
        do, di, so, si = steps
        one = 4 | tokens << 3 | first << 8 | end << 21 | outer << 35 | inner << 49
        two = do | di << 11 | so << 22 | si << 33 | operation << 44
        if immediate is not None:
            two |= 1 << 44 + self.k | (immediate & 0xFFFF) << 45 + self.k
        return one, two


def uop(dst: int = 0, src: int = 0, wgt: int = 0) -> int:
    return dst | src << 11 | wgt << 22


class Image:
    """The memory image of a test, to fill with numbers."""

    def __init__(self) -> None:
        self.bytes = np.zeros(SIZE, np.uint8)

    def put(self, memory: int, entry: int, values: Any) -> Image:
        base, size = BASES[memory]
        kinds = {UOP: np.uint32, INP: np.int8, ACC: np.int32, WGT: np.int8, OUT: np.int8}
        data = np.ascontiguousarray(values, kinds[memory]).view(np.uint8).reshape(-1)
        start = base + entry * size
        self.bytes[start : start + data.size] = data
        return self

    def program(self, words: Iterable[Word]) -> int:
        data = np.array([*words], np.uint64).view(np.uint8).reshape(-1)
        self.bytes[INSTRUCTIONS : INSTRUCTIONS + data.size] = data
        return data.size // 16

    def outputs(self, first: int, count: int) -> list[list[int]]:
        entries: list[list[int]] = self.bytes[OUTPUTS:].view(np.int8).reshape(-1, 16)[first : first + count].tolist()
        return entries


class Machine:
    """Runs programs on a chip of one implementation: that of ``chai.vta``, or a wrong one."""

    def __init__(self, modules: Any, encoding: str = "old") -> None:
        self.m, self.encoding = modules, encoding
        self.machine = modules.checks.Machine(encoding, DEPTHS)
        self.chip = modules.simulator.Chip(self.machine)
        self.asm = Assembler(encoding)

    def areas(self, image: Image) -> list[Any]:
        memories = {int(m): m for m in self.m.isa.Memory}
        ends = {INSTRUCTIONS: UOPS, UOPS: INPUTS, INPUTS: ACCUMULATORS, ACCUMULATORS: WEIGHTS, WEIGHTS: OUTPUTS}
        areas = [self.m.checks.Area(INSTRUCTIONS, image.bytes[: ends[0]])]
        for memory in (UOP, INP, ACC, WGT):
            start = BASES[memory][0]
            areas.append(self.m.checks.Area(start, image.bytes[start : ends[start]], frozenset([memories[memory]])))
        loads = frozenset([memories[INP]])
        return [*areas, self.m.checks.Area(OUTPUTS, image.bytes[OUTPUTS:], loads, writable=True)]

    def run(self, image: Image, words: Sequence[Word], distance: bool = False) -> Image:
        count = image.program(words)
        steps = self.m.checks.checked(INSTRUCTIONS, count, self.machine, self.areas(image), distance=distance)
        self.chip.run(steps)
        return image

    def compute(
        self, image: Image, words: Sequence[Word], stored: int, uops: int = 16, distance: bool = False
    ) -> Image:
        """Run ``words`` between loading 64 entries of everything and storing OUT's first ``stored``."""
        a = self.asm
        loads = [
            a.load(INP, 0, 0, 64),
            a.load(WGT, 0, 0, 8, tokens=PUSH_NEXT),
            a.load(UOP, 0, 0, uops),
            a.load(ACC, 0, 0, 64, tokens=POP_PREV),
        ]
        last = a.load(UOP, 0, 0, 0, tokens=PUSH_NEXT)
        return self.run(image, [*loads, *words, last, a.store(0, 0, stored), TAKE, FINISH], distance)
