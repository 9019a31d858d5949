"""A wrong bit in a program: it is refused before it starts, or changes nothing but output blobs and marks."""

from __future__ import annotations

import numpy as np
import pytest

from chai.codegen.memory_map import FIXED, MARKS, OUTPUT, REGION
from chai.errors import DeviceError
from chai.fixed import Requantization
from chai.tasks.conv import Conv
from chai.tasks.window import Window
from chai.vta.isa import Load
from chai.vta.program import MARK
from chai.vta.simulator import Chip

from .random_tasks import MACHINE, alone, buffers


def full() -> Chip:
    """Return a chip with other things on it than zeros."""
    chip = Chip(MACHINE)
    for number, memory in enumerate((chip.inp, chip.wgt, chip.acc, chip.out)):
        memory[...] = np.random.default_rng(number).integers(-128, 128, memory.shape)
    return chip


class Small:
    """A small convolution's program in memory."""

    def __init__(self) -> None:
        weights = np.arange(2 * 3 * 2 * 1, dtype=np.int8).reshape(2, 3, 2, 1)
        r = Requantization(np.ones((2, 1, 1)), 2, -128, 127)
        task = Conv(("x",), "y", ("c",), weights, np.arange(2), Window((2, 1), (1, 1), (1, 0)), 1, r)
        self.segment = alone(task, {"x": (1, 3, 3, 4), "y": (1, 2, 4, 4)})
        self.base, self.memory = buffers(self.segment)
        self.segment.fix(self.base, self.memory[FIXED])
        for region, data in self.memory.items():
            if region != FIXED:
                data[:] = np.random.default_rng(region).integers(0, 256, data.size)
        self.begin = self.segment.start
        first = self.segment.program[0]
        assert isinstance(first, Load)
        micro_ops = first.dram * 4 - (FIXED << REGION)
        self.micro_ops = range(micro_ops, micro_ops + first.columns * 4)

    def refused(self, byte: int, bit: int) -> bool:
        """Flip a bit of FIXED and run; return whether that is refused.

        Asserts that only outputs change, to what does not depend on what was on the chip before.
        """
        before = {region: data.copy() for region, data in self.memory.items()}
        self.memory[FIXED][byte] ^= 1 << bit
        try:
            steps = self.segment.checked(self.base, self.memory)
        except DeviceError:
            return True
        else:
            outputs = []
            for chip in (Chip(MACHINE), full()):
                chip.run(steps)
                outputs.append([self.memory[region].tobytes() for region in (OUTPUT, MARKS)])
            assert outputs[0] == outputs[1]
            return False
        finally:
            self.memory[FIXED][byte] ^= 1 << bit
            for region, data in self.memory.items():
                if region == MARKS:
                    data[MARK:] = before[region][MARK:]
                assert region == OUTPUT or np.array_equal(data, before[region])
                data[:] = before[region]


def flips(step: int) -> tuple[int, int]:
    """Flip every ``step``-th bit of instructions and micro-ops; return how many were refused, and how many not."""
    small = Small()
    parts = [*range(small.begin, len(small.memory[FIXED])), *small.micro_ops]
    verdicts = [small.refused(parts[i // 8], i % 8) for i in range(0, 8 * len(parts), step)]
    return sum(verdicts), len(verdicts) - sum(verdicts)


def test_some_wrong_bits() -> None:
    refused, harmless = flips(23)
    assert refused > 20
    assert harmless > 20


@pytest.mark.slow
def test_every_wrong_bit() -> None:
    refused, harmless = flips(1)
    assert refused > 500
    assert harmless > 500
