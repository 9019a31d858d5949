"""Eltwise SUM and Copy on VTA: sums of inputs times integers, by GEMMs with diagonal matrices.

A factor is written in digits of 7 bits with signs: the highest digits' sums are shifted to the left by 7 bits, and the next
digits' are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ..blob import Array
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div, round_up
from .conv import FIXED, INPUTS, SPARE, SUMS, Plane, starts
from .emit import GemmPass, Group, MicroOps
from .isa import BLOCK, AluOperation, Gemm, Instruction, Load, Memory, MicroOp, Store
from .loops import FORGET
from .requantize import Runs, Shift, begin, end

DIGIT = 7  # bits
MOST = 256  # positions at a time


def digits(factor: int) -> list[int]:
    """Return the digits of a factor, lowest first: each from -64 to 63, the last one any that is left."""
    factors = []
    while not -128 <= factor <= 127:
        low = (factor + 64) % 128 - 64
        factors.append(low)
        factor = (factor - low) >> DIGIT
    return [*factors, factor]


@dataclass
class Sum:
    """Lowers the sum of ``sources`` times ``factors``; ``shift`` None keeps the low 8 bits as they are."""

    sources: Sequence[Plane]
    target: Plane
    factors: Sequence[int]
    shift: Shift | None
    micro_ops: MicroOps

    def groups(self) -> Iterator[Group]:
        """Yield the groups of positions in order: one block of channels each."""
        pixels = self.target.height * self.target.width
        size = ceil_div(pixels, ceil_div(pixels, MOST))
        blocks = range(ceil_div(self.sources[0].channels, BLOCK))
        places = product(range(self.target.batch), blocks, starts(pixels, size))
        return (self._group(place, size, number % 2) for number, place in enumerate(places))

    def _group(self, place: tuple[int, int, int], size: int, half: int) -> Group:
        """Return the sums of ``size`` positions; ``place`` is (image, block, first position)."""
        micro_ops, (image, block, at) = self.micro_ops, place
        dst, inp, wgt, count = half * SUMS, half * INPUTS, half * 64, round_up(size, FORGET)
        loads = [
            Load(Memory.INP, inp + i * count, source.entry(image, block) + at, 1, size)
            for i, source in enumerate(self.sources)
        ]
        steps = [digits(factor) for factor in self.factors]
        gemms: list[Instruction] = []
        matrices: list[Array] = []
        for digit in reversed(range(max(map(len, steps)))):
            for i, step in enumerate(steps):
                if digit < len(step) and step[digit]:
                    table = micro_ops.table(
                        MicroOp(dst + k, inp + i * count + k, wgt + len(matrices)) for k in range(FORGET)
                    )
                    gemms.append(Gemm(*table, count // FORGET, 1, FORGET, 0, FORGET))
                    matrices.append(step[digit] * np.eye(BLOCK, dtype=np.int8))
            if digit:
                gemms.append(micro_ops.apply(AluOperation.SHR, dst, count, -DIGIT))
        if matrices:
            loads.append(micro_ops.constants.load(Memory.WGT, wgt, np.stack(matrices)))
        before: list[Instruction] = [micro_ops.clear(dst, count)]
        after: list[Instruction] = []
        if self.shift is not None:
            sums = Runs(dst, count, 1, FIXED + half * 64)
            *before, last = begin(micro_ops, self.shift, np.zeros(BLOCK, np.int64), 0, sums)
            after = [last, *end(micro_ops, self.shift, sums, SPARE)]  # the bias is not shifted with digits
        if not gemms:
            gemms.append(micro_ops.apply(AluOperation.ADD, dst, count, 0))
        store = Store(dst, self.target.entry(image, block) + at, 1, size, 0)
        return Group(before, [GemmPass(loads, gemms)], after, [store])
