"""Random programs: what is accepted does on the simulator what the hardware does, whatever was on the chip before."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from chai.errors import DeviceError
from chai.vta import checks, isa, simulator

from .by_hand import (
    ACC,
    ADD,
    FINISH,
    INP,
    POP_NEXT,
    POP_PREV,
    PUSH_NEXT,
    PUSH_PREV,
    SIZE,
    UOP,
    WGT,
    Assembler,
    Image,
    Machine,
    Word,
    uop,
)
from .naive import Naive

MODULES = SimpleNamespace(isa=isa, checks=checks, simulator=simulator)
FROM_LOAD, COMPUTE, TO_STORE = range(3)  # units
Step = tuple[int, Word]  # of a unit


def unit_of(memory: int) -> int:
    return COMPUTE if memory in (UOP, ACC) else FROM_LOAD


def random_image(random: np.random.Generator) -> Image:
    image = Image()
    image.bytes[:] = random.integers(0, 256, SIZE)
    indices = random.integers(0, (12, 12, 4), (256, 3))  # small, so that loops stay inside
    image.put(UOP, 0, indices @ (1, 1 << 11, 1 << 22))
    return image.put(UOP, 128, [uop(i) for i in range(32)])


def random_steps(random: np.random.Generator, a: Assembler) -> list[Step]:
    """Return loads of what is used and a step that fills OUT, of which some are missing, and then any instructions."""

    def some(most: int) -> int:
        return int(random.integers(most + 1))

    def rarely(most: int, usual: int) -> int:
        return usual if random.integers(30) else some(most)

    def load(memory: int) -> Step:
        rows, columns = rarely(2, 1 if memory == UOP else 1 + some(2)), rarely(3, 1 + some(3))
        padded = random.integers(2) if memory == INP else not random.integers(80)
        pads = (some(3), some(2), some(2), some(3)) if padded else (0, 0, 0, 0)
        return unit_of(memory), a.load(memory, some(20), some(20), columns, rows, some(7), pads)

    def compute() -> Step:
        first, outer, inner = some(8), some(3), some(3)
        if random.integers(2):
            steps = some(3), some(3), some(3), some(3), some(2), some(2)
            return COMPUTE, a.gemm(first, first + some(6), outer, inner, steps, some(1))
        number = int(random.choice([-17, -1, 0, 3, 16, 300, -32768])) if random.integers(3) else None
        return COMPUTE, a.alu(
            some(3), first, first + some(6), number, outer, inner, (some(3), some(3), some(3), some(3))
        )

    def store() -> Step:
        return TO_STORE, a.store(some(12), some(20), some(5), rarely(2, 1 + some(2)), rarely(9, 6), 0)

    loads = [(unit_of(m), a.load(m, 0, 0, count)) for m, count in ((UOP, 256), (INP, 64), (WGT, 32), (ACC, 64))]
    full = [step for step in (*loads, (COMPUTE, a.alu(ADD, 128, 160, 0))) if random.integers(25)]
    kinds = [lambda: load(int(random.choice([UOP, WGT, INP, ACC]))), compute, compute, store]
    return [*full, *(kinds[some(3)]() for _ in range(4 + some(9)))]


def one_after_the_other(steps: list[Step], a: Assembler) -> list[Word]:
    """Return a program of these steps in which each unit waits for the one before; load and store do so through compute."""
    whole = [steps[0]]
    for step in (*steps[1:], (COMPUTE, a.load(UOP, 0, 0, 0))):
        if abs(step[0] - whole[-1][0]) == 2:
            whole.append((COMPUTE, a.load(UOP, 0, 0, 0)))
        whole.append(step)
    tokens = [0] * len(whole)
    for i in range(1, len(whole)):
        if whole[i][0] != whole[i - 1][0]:
            forward = whole[i][0] > whole[i - 1][0]
            tokens[i - 1] |= PUSH_NEXT if forward else PUSH_PREV
            tokens[i] |= POP_PREV if forward else POP_NEXT
    return [*((low | token << 3, high) for (_, (low, high)), token in zip(whole, tokens)), FINISH]


def check(seeds: range) -> Counter[str]:
    """Compare the programs of these seeds; return how many ran, and stored something, and how many were refused."""
    verdicts: Counter[str] = Counter()
    for seed in seeds:
        random = np.random.default_rng(seed)
        machine = Machine(MODULES, ("old", "new")[seed % 2])
        image = random_image(random)
        words = one_after_the_other(random_steps(random, machine.asm), machine.asm)
        image.program(words)
        before = image.bytes.copy()
        for memory in (machine.chip.inp, machine.chip.wgt, machine.chip.acc, machine.chip.out):
            memory[...] = random.integers(-128, 128, memory.shape)
        try:
            machine.run(image, words)
        except DeviceError as error:
            assert error.message.startswith("instruction "), error.message
            verdicts["refused"] += 1
            continue
        naive = Naive(before.copy(), machine.encoding, random)
        naive.run(words)
        assert np.array_equal(image.bytes, naive.image), seed
        verdicts["ran"] += 1
        verdicts["stored"] += not np.array_equal(image.bytes, before)
    return verdicts


def test_random_programs() -> None:
    verdicts = check(range(200))
    assert verdicts["stored"] > 100
    assert verdicts["refused"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_programs(part: int) -> None:
    assert check(range(1000 + 1000 * part, 2000 + 1000 * part))["stored"] > 300
