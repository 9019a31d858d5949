"""Requantisation by powers of two on VTA: the same bits as ``fixed.requantize``.

A multiplier 2^k and a shift s are a shift by r = s - k with R = 2^(r-1). After a ReLU R is a part of the bias, since rounding
half away and half up agree for every sum that it leaves. Without one, t is -1 where the sum is negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..blob import Array
from ..fixed import Requantization
from ..util.lazy_numpy import np
from .emit import MicroOps
from .isa import BLOCK, LEFT, RIGHT, AluOperation, Instruction, Memory

WIDE = 256  # beyond every code: sums are clamped to it before a left shift
IMMEDIATE = (1 << 15) - 1
SHIFT = 15  # bits of one SHR to the right
SHIFTS = "first", "second"  # the constants of one and of a further SHR


@dataclass(frozen=True)
class Shift:
    """Requantisation of sums (M channels): ``right`` bits per channel, int64 (M,), and the clamp of codes."""

    right: Array
    low: int
    high: int

    @property
    def relu(self) -> bool:
        """Return whether no code below 0 is left."""
        return self.low == 0

    @property
    def half(self) -> Array:
        """Return R of each channel, int64 (M,)."""
        return np.where(self.right > 0, 1 << np.maximum(self.right - 1, 0), 0)

    @property
    def spare(self) -> bool:
        """Return whether it needs a second run of accumulators."""
        return not self.relu and bool((self.right > 0).any())

    @property
    def uniform(self) -> bool:
        """Return whether all channels are shifted alike."""
        return bool((self.right == self.right[0]).all())

    @property
    def constants(self) -> list[str]:
        """Return the constants of a block of channels, one entry each: those that no immediate holds."""
        shifts = SHIFTS if self.right.max() > SHIFT else SHIFTS[:1]
        half = self.spare and (not self.uniform or int(self.half[0]) > IMMEDIATE)
        return ["bias", *(["half"] if half else []), *([] if self.uniform else shifts)]


def shift_of(r: Requantization, channels: int, silent: Array | None = None) -> Shift | str:
    """Return the Shift of a Requantization, or why VTA has none; the sums of ``silent`` channels are always 0."""
    if r.negative is not None:
        return "a leaky ReLU: VTA has no multiplier after its accumulators"
    if r.zero:
        return "unsigned codes: VTA pads with 0, which must be the code of 0"
    m = np.broadcast_to(np.asarray(r.multiplier, np.int64).reshape(-1), channels).copy()
    if silent is not None and not silent.all():
        m[silent] = m[~silent][0]
    if (m <= 0).any() or (m & (m - 1)).any():
        return "its multipliers are not powers of two: VTA has no multiplier after its accumulators"
    right = r.shift - (np.frexp(m.astype(np.float64))[1].astype(np.int64) - 1)
    if right.min() < -LEFT or right.max() > RIGHT:
        return f"its sums are shifted by {right.min()} to {right.max()} bits, expected {-LEFT} to {RIGHT}"
    if right.min() <= 0 < right.max():
        return "some of its channels are shifted to the right, others not"
    if not r.low <= 0 <= r.high:
        return f"its codes are clamped to {r.low}..{r.high}, without 0"
    return Shift(right, r.low, r.high)


def table(shift: Shift, bias: Array, first: int, blocks: int) -> Array:
    """Return the constants of ``blocks`` blocks of 16 channels from block ``first``: int32 (n * blocks, 16)."""
    part = slice(BLOCK * first, BLOCK * (first + blocks))
    right = shift.right[part]
    rows = {
        "bias": (bias + shift.half if shift.relu else bias)[part],
        "half": shift.half[part],
        "first": np.minimum(right, SHIFT),
        "second": np.maximum(right - SHIFT, 0),
    }
    padded = np.zeros((len(shift.constants), blocks * BLOCK), np.int32)  # zeros after the last channel
    for row, name in zip(padded, shift.constants):
        row[: len(rows[name])] = rows[name]
    return padded.reshape(-1, BLOCK)


class Runs(NamedTuple):
    """Accumulators from ``dst`` on: ``groups`` runs of ``size``, one run for each block of channels.

    ``constants``  the first of the accumulators that hold the constants of these blocks
    """

    dst: int
    size: int
    groups: int
    constants: int


def begin(micro_ops: MicroOps, shift: Shift, bias: Array, first: int, sums: Runs) -> list[Instruction]:
    """Return what loads the constants of the blocks of channels from ``first`` on, and sets sums to their bias."""
    dst, count, groups, constants = sums
    load = micro_ops.constants.load(Memory.ACC, constants, table(shift, bias, first, groups))
    clear = micro_ops.clear(dst, count * groups)
    return [load, clear, micro_ops.spread(AluOperation.ADD, dst, count, constants, groups)]


def end(micro_ops: MicroOps, shift: Shift, sums: Runs, spare: int) -> list[Instruction]:
    """Return what turns sums into codes; from ``spare`` on there are as many accumulators to use."""
    dst, count, groups, constants = sums
    u, every = micro_ops, count * groups
    right, first = int(shift.right[0]), min(int(shift.right[0]), SHIFT)

    def with_constant(operation: AluOperation, name: str) -> Instruction:
        """Return an operation on sums and a constant of their block."""
        return u.spread(operation, dst, count, constants + shift.constants.index(name) * groups, groups)

    instructions: list[Instruction] = []
    if shift.spare:
        half = "half" in shift.constants
        instructions += [
            u.clear(spare, every),
            u.combine(AluOperation.ADD, spare, every, dst),
            u.apply(AluOperation.MAX, spare, every, -1),
            u.apply(AluOperation.MIN, spare, every, 0),
            *([] if half else [u.apply(AluOperation.ADD, spare, every, int(shift.half[0]))]),
            u.combine(AluOperation.ADD, dst, every, spare),
            *([with_constant(AluOperation.ADD, "half")] if half else []),
        ]
    if shift.right.min() < 0:
        instructions += [u.apply(AluOperation.MAX, dst, every, -WIDE), u.apply(AluOperation.MIN, dst, every, WIDE)]
    if shift.uniform:
        instructions += [u.apply(AluOperation.SHR, dst, every, bits) for bits in (first, right - first) if bits]
    else:
        instructions += [with_constant(AluOperation.SHR, name) for name in shift.constants if name in SHIFTS]
    return [
        *instructions,
        u.apply(AluOperation.MAX, dst, every, shift.low),
        u.apply(AluOperation.MIN, dst, every, shift.high),
    ]
