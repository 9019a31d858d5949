"""VTA as its hardware is described: one instruction after the other, one entry at a time, with nothing of chai's.

It refuses nothing. Numbers are bits by position, as in ``by_hand``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .by_hand import ACC, BASES, DEPTHS, INP, MAX, MIN, OUT, SHR, UOP, WGT, WIDTH, Word

LOAD, STORE, GEMM, _, ALU = range(5)
KINDS = {UOP: ("<u4", ()), WGT: ("i1", (16, 16)), INP: ("i1", (16,)), ACC: ("<i4", (16,)), OUT: ("i1", (16,))}


class Naive:
    """The memories on the chip, filled with numbers of ``random``, and a memory image."""

    def __init__(self, image: np.ndarray, encoding: str, random: np.random.Generator) -> None:
        self.image, self.k = image, WIDTH[encoding]
        self.chip = {
            memory: random.integers(0, 128, (DEPTHS[memory], *shape)).astype(kind)
            for memory, (kind, shape) in KINDS.items()
        }

    def run(self, words: Sequence[Word]) -> None:
        for low, high in words:
            opcode = low & 7
            if opcode in (LOAD, STORE):
                self._move(opcode, low, high)
            elif opcode in (GEMM, ALU):
                self._compute(opcode, low, high)

    def _move(self, opcode: int, low: int, high: int) -> None:
        k = self.k
        memory = OUT if opcode == STORE else low >> 7 & (1 << k) - 1
        entry, dram = low >> 7 + k & 0xFFFF, low >> 23 + k & 0xFFFFFFFF
        rows, columns, stride = (high >> at & 0xFFFF for at in (0, 16, 32))
        top, bottom, left, right = (high >> at & 15 for at in (48, 52, 56, 60))
        if memory == UOP:  # one transfer
            rows, top, bottom, left, right = 1, 0, 0, 0, 0
        if memory != INP:
            top = bottom = left = right = 0
        target, size = self.chip[memory], BASES[memory][1]
        for y in range(-top, rows + bottom):
            for x in range(-left, columns + right):
                at = (dram + y * stride + x) * size
                if not (0 <= y < rows and 0 <= x < columns):
                    target[entry] = 0
                elif opcode == STORE:
                    self.image[at : at + size] = target[entry].view(np.uint8)
                else:
                    kind, shape = KINDS[memory]
                    target[entry] = self.image[at : at + size].view(kind).reshape(shape)
                entry += 1

    def _compute(self, opcode: int, low: int, high: int) -> None:
        first, end, outer, inner = low >> 8 & 0x1FFF, low >> 21 & 0x3FFF, low >> 35 & 0x3FFF, low >> 49 & 0x3FFF
        steps = [high >> at & 0x7FF for at in (0, 11, 22, 33)] + [high >> at & 0x3FF for at in (44, 54)]
        for o in range(outer):
            for i in range(inner):
                for micro_op in map(int, self.chip[UOP][first:end]):
                    dst = (micro_op & 0x7FF) + o * steps[0] + i * steps[1]
                    src = (micro_op >> 11 & 0x7FF) + o * steps[2] + i * steps[3]
                    if opcode == GEMM:
                        self._gemm(dst, src, (micro_op >> 22) + o * steps[4] + i * steps[5], low >> 7 & 1)
                    else:
                        self._alu(dst, src, high)

    def _gemm(self, dst: int, src: int, wgt: int, reset: int) -> None:
        weights, inputs = self.chip[WGT][wgt].astype(int), self.chip[INP][src].astype(int)
        for lane in range(16):
            total = _wrapped(int(self.chip[ACC][dst][lane]) + sum(map(int, weights[lane] * inputs)), 32)
            self.chip[ACC][dst][lane] = 0 if reset else total
            self.chip[OUT][dst][lane] = _wrapped(total, 8)

    def _alu(self, dst: int, src: int, high: int) -> None:
        operation, has, number = high >> 44 & 3, high >> 44 + self.k & 1, _wrapped(high >> 45 + self.k & 0xFFFF, 16)
        others = [number] * 16 if has else [*map(int, self.chip[ACC][src])]
        for lane, other in enumerate(others):
            value = int(self.chip[ACC][dst][lane])
            if operation == SHR:
                amount = _wrapped(other, 5)
                result = value >> amount if amount >= 0 else value << -amount
            else:
                result = (
                    min(value, other) if operation == MIN else max(value, other) if operation == MAX else value + other
                )
            self.chip[ACC][dst][lane] = _wrapped(result, 32)
            self.chip[OUT][dst][lane] = _wrapped(result, 8)


def _wrapped(value: int, bits: int) -> int:
    """Return the low bits of a number, as a signed one."""
    half = 1 << bits - 1
    return (value + half) % (2 * half) - half
