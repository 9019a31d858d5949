"""Eltwise SUM and Copy on VTA: sums of inputs times integers, by GEMMs with diagonal matrices.

A factor is written in digits of 7 bits with signs: the highest digits' sums are shifted to the left by 7 bits, and the next
digits' are added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..blob import Array
from ..util.lazy_numpy import np
from ..util.rounding import ceil_div, round_up
from .conv import FIXED, INPUTS, SPARE, SUMS, Plane
from .emit import ConstantPool, GemmPass, Group, MicroOps
from .isa import BLOCK, AluOperation, Gemm, Instruction, Load, Memory, MicroOp, Store
from .loops import FORGET
from .requantize import Runs, Shift, begin, end, loaded

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
    constants: ConstantPool

    def groups(self, micro_ops: MicroOps) -> Iterator[Group]:
        """Yield the groups of positions in order: one block of channels each."""
        pixels, done = self.target.height * self.target.width, 0
        size = ceil_div(pixels, ceil_div(pixels, MOST))
        for image in range(self.target.batch):
            for block in range(ceil_div(self.sources[0].channels, BLOCK)):
                for at in range(0, pixels, size):
                    yield self._group(micro_ops, (image, block, min(at, pixels - size)), size, done % 2)
                    done += 1

    def _group(self, micro_ops: MicroOps, where: tuple[int, int, int], size: int, half: int) -> Group:
        """Return the sums of ``size`` positions; ``where`` is (image, block, first position)."""
        image, block, at = where
        dst, inp, wgt, count = half * SUMS, half * INPUTS, half * 64, round_up(size, FORGET)
        loads = [
            Load(Memory.INP, inp + i * count, source.entry(image, block) + at, 1, size)
            for i, source in enumerate(self.sources)
        ]
        steps = [digits(factor) for factor in self.factors]
        places = max(map(len, steps))
        gemms: list[Instruction] = []
        matrices: list[Array] = []
        for place in reversed(range(places)):
            for i, step in enumerate(steps):
                if place < len(step) and step[place]:
                    table = micro_ops.table(
                        MicroOp(dst + k, inp + i * count + k, wgt + len(matrices)) for k in range(FORGET)
                    )
                    gemms.append(Gemm(*table, count // FORGET, 1, FORGET, 0, FORGET))
                    matrices.append(step[place] * np.eye(BLOCK, dtype=np.int8))
            if place:
                gemms.append(micro_ops.apply(AluOperation.SHR, dst, count, -DIGIT))
        if matrices:
            loads.append(self.constants.load(Memory.WGT, wgt, np.stack(matrices)))
        fixed = FIXED + half * 64
        before: list[Instruction] = [micro_ops.clear(dst, count)]
        after: list[Instruction] = []
        if self.shift is not None:
            bias = np.zeros(BLOCK, np.int64)
            load = loaded(self.constants, self.shift, bias, 0, 1, fixed)
            *before, last = begin(micro_ops, load, Runs(dst, count), fixed)
            after = [
                last,
                *end(micro_ops, self.shift, Runs(dst, count), fixed, SPARE),
            ]  # the bias is not shifted with digits
        if not gemms:
            gemms.append(micro_ops.apply(AluOperation.ADD, dst, count, 0))
        store = Store(dst, self.target.entry(image, block) + at, 1, size, 0)
        return Group(before, [GemmPass(loads, gemms)], after, [store])
