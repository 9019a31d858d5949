"""Drive VTA: its registers, and what the host sees of a program.

There is no ID, no reset, no error register and no counter of cycles. Whatever uses these registers has loaded the bitstream
before.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from ..codegen.memory_map import FIXED, MARKS, PROGRAM, Buffers
from ..errors import DeviceError
from ..fixed import Requantization
from ..overlay import Overlay
from ..overlay.architecture import Bus, Proof
from ..tasks.conv import Conv
from ..tasks.window import POINT
from ..tasks.work import Work
from ..text import number_of
from ..util.lazy_numpy import np
from .isa import BLOCK
from .program import ALIGNMENT, MARK, MOST, VtaSegment
from .segment import segment

START, RESTART = 0x01, 0x80  # bits of each block's control: start, and start again by itself when done
SHIFT = 9  # bits, of the known program


class Blocks:
    """The registers of the four blocks: ``fetch``, ``load``, ``compute`` and ``store``."""

    def __init__(self, overlay: Overlay, windows: Mapping[str, Bus]) -> None:
        self.overlay = overlay
        self.registers = overlay.machine.registers
        self.windows = windows
        self._mark = b""

    def check(self, segment: VtaSegment, memory: Buffers) -> None:
        """Check a program in memory as it is there, before its first start. Raises DeviceError."""
        wrong = [at for at in memory.addresses.values() if at % ALIGNMENT or at >> 32]
        if wrong:
            raise DeviceError(f"a buffer at {wrong[0]:#x}: VTA reaches multiples of {ALIGNMENT} below 4 GB")
        if segment.sizes[FIXED] - segment.start > MOST:
            raise DeviceError(f"{len(segment.program):,} instructions are more than {MOST:,} bytes")
        # a copy: an error's traceback must not hold buffers. Only constants and instructions are looked at
        copies = {region: np.zeros(len(data), np.uint8) for region, data in memory.bytes.items()}
        for region in copies.keys() & {FIXED, PROGRAM}:
            copies[region][:] = memory.bytes[region]
        segment.checked(memory.addresses, copies)

    def start(self, segment: VtaSegment, memory: Buffers) -> None:
        """Start a program that was checked in this memory."""
        self._mark = os.urandom(BLOCK)
        marks, mark = memory.bytes[MARKS], np.frombuffer(self._mark, np.int8)
        marks[:MARK] = mark.astype("<i4").view(np.uint8)
        marks[MARK:].reshape(-1, BLOCK)[...] = ~mark.view(np.uint8)
        memory.flush([MARKS])
        self._write("fetch", "count", len(segment.program))
        self._write("fetch", "address", segment.entry(memory.addresses))
        for block, name in (("load", "inp"), ("load", "wgt"), ("compute", "uop"), ("compute", "acc"), ("store", "out")):
            self._write(block, name, 0)  # instructions hold whole addresses
        self.windows["fetch"].write(self.registers["control"], START)
        for block in ("load", "compute", "store"):
            self.windows[block].write(self.registers["control"], START | RESTART)

    def ended(self, segment: VtaSegment, memory: Buffers) -> bool:
        """Return whether the program that was started last has ended.

        The done flag may be that of the program before: it counts with the last Task's mark.
        """
        done = self.windows["compute"].read(self.registers["compute"]["done"]) & 1
        return bool(done) and self._ended(segment, memory) == len(segment.tasks)

    def late(self, segment: VtaSegment, memory: Buffers, waited: str) -> DeviceError:
        """Return the error of a program that has not ended after ``waited``: the first Task without a mark is named."""
        count = self._ended(segment, memory)
        words = f"not done after {waited}"
        if segment.tasks:
            words += f", {count} of {number_of(len(segment.tasks), 'Task')} completed"
        hint = "the bitstream was loaded again; if it stays so, power cycle"
        if count == len(segment.tasks):
            return DeviceError(words, hint=hint)
        late = segment.tasks[count]
        return DeviceError(f"layer {late.origin[0]!r} ({late.kind}): {words}", layer=late.origin[0], hint=hint)

    def proofs(self) -> Iterator[Proof]:
        """Yield programs with known results, to run before any other: the first writes no memory."""
        yield Proof("a program of one FINISH", segment(Work(self.overlay, [], {})), {}, {})
        yield _known(self.overlay)

    def _ended(self, segment: VtaSegment, memory: Buffers) -> int:
        """Return how many Tasks have ended."""
        memory.invalidate([MARKS])
        blocks = memory.bytes[MARKS][MARK:].tobytes()
        marks = [blocks[i : i + BLOCK] == self._mark for i in range(0, len(blocks), BLOCK)]
        return marks.index(False) if False in marks else len(marks)

    def _write(self, block: str, name: str, value: int) -> None:
        self.windows[block].write(self.registers[block][name], value)


def _known(overlay: Overlay) -> Proof:
    """Return a convolution of 16 channels and 16 positions."""
    shapes = dict.fromkeys("xy", (1, BLOCK, 2, 8))
    codes = (np.arange(BLOCK * BLOCK) * 37 % 251 - 125).astype(np.int8).reshape(shapes["x"])
    weights = (np.arange(BLOCK * BLOCK) * 91 % 241 - 120).astype(np.int8).reshape(BLOCK, BLOCK, 1, 1)
    bias, rule = np.arange(BLOCK) * 911 - 5000, Requantization(np.array(1), SHIFT, -128, 127)
    task = Conv(("x",), "y", ("the known program",), weights, bias, POINT, 1, rule)
    lowered = segment(Work(overlay, [task], shapes, {}, "x", "y"))
    return Proof("a known program", lowered, {"x": codes}, {"y": task.define(codes)})
