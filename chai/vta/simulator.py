"""A simulator of VTA in plain numpy: it runs instructions from the bytes of a memory image.

Sums wrap around in 32 bits, SHR takes a signed 5-bit amount, STORE keeps the low 8 bits. Nothing on the chip is cleared
between programs. Micro-ops of which none depends on another are computed together.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..blob import Array
from ..util.lazy_numpy import np
from .checks import Checked, Machine
from .isa import BLOCK, Alu, AluOperation, Gemm, Load, Memory, Store
from .loops import Indices


class Chip:
    """The memories on the chip; they keep their contents from program to program."""

    def __init__(self, machine: Machine) -> None:
        depths = machine.depths
        self.inp = np.zeros((depths[Memory.INP], BLOCK), np.int8)
        self.wgt = np.zeros((depths[Memory.WGT], BLOCK, BLOCK), np.int8)  # [out][in]
        self.acc = np.zeros((depths[Memory.ACC], BLOCK), np.int32)
        self.out = np.zeros((depths[Memory.OUT], BLOCK), np.int8)

    def run(self, program: Iterable[Checked]) -> None:
        """Run a checked program; its STOREs write to the areas that it was checked with."""
        for instruction, indices, dram, _ in program:
            if isinstance(instruction, Gemm) and indices is not None:
                self._gemm(indices, bool(instruction.reset))
            elif isinstance(instruction, Alu) and indices is not None:
                self._alu(instruction, indices)
            elif isinstance(instruction, Load) and dram is not None:
                self._load(instruction, dram)
            elif isinstance(instruction, Store) and dram is not None:
                entries = self.out[instruction.entry :][: instruction.rows * instruction.columns]
                dram[...] = entries.reshape(instruction.rows, -1).view(np.uint8)

    def _load(self, load: Load, dram: Array) -> None:
        if load.memory == Memory.UOP:
            return  # the checks have read them
        memories: dict[Memory, Array] = {Memory.INP: self.inp, Memory.WGT: self.wgt, Memory.ACC: self.acc}
        target = memories[load.memory]
        entries = np.ascontiguousarray(dram).view(target.dtype).reshape(load.rows, load.columns, *target.shape[1:])
        height, width = load.top + load.rows + load.bottom, load.left + load.columns + load.right
        part = target[load.entry : load.entry + height * width].reshape(height, width, *target.shape[1:])
        if part.size != entries.size:
            part[...] = 0
        part[load.top : load.top + load.rows, load.left : load.left + load.columns] = entries

    def _gemm(self, indices: Indices, reset: bool) -> None:
        for run in indices.runs:
            dst, src, wgt = indices.dst[run], indices.src[run], indices.wgt[run]
            total = self.acc[dst] + self._products(src, wgt)
            self.out[dst] = total.astype(np.int8)
            self.acc[dst] = 0 if reset else total

    def _products(self, src: Array, wgt: Array) -> Array:
        """Return WGT[wgt] times INP[src], int32 (n, 16); sums of 16 products are exact in float32."""
        inputs = self.inp[src].astype(np.float32)
        total: Array
        if (wgt == wgt[0]).all():
            total = inputs @ self.wgt[wgt[0]].T.astype(np.float32)
        else:
            total = np.matmul(self.wgt[wgt].astype(np.float32), inputs[:, :, None])[..., 0]
        return total.astype(np.int32)

    def _alu(self, alu: Alu, indices: Indices) -> None:
        for run in indices.runs:
            dst = indices.dst[run]
            before = self.acc[dst]
            other = self.acc[indices.src[run]] if alu.immediate is None else np.array(alu.immediate, np.int32)
            self.acc[dst] = after = _operate(alu.operation, before, other)
            self.out[dst] = after.astype(np.int8)


def _operate(operation: AluOperation, value: Array, other: Array) -> Array:
    """Return the result of an operation, int32."""
    result: Array
    if operation == AluOperation.MIN:
        result = np.minimum(value, other)
    elif operation == AluOperation.MAX:
        result = np.maximum(value, other)
    elif operation == AluOperation.ADD:
        result = value + other
    else:
        amount = (other & 31 ^ 16) - 16  # signed, 5 bits
        result = np.where(amount < 0, value << (-amount & 31), value >> np.maximum(amount, 0))
    return result
