"""48 programs that two public models of VTA ran, with equal results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chai.errors import DeviceError
from chai.vta.checks import Area, Checked, Machine, checked
from chai.vta.isa import Memory
from chai.vta.simulator import Chip

from .by_hand import DEPTHS

NAMES = [f"{encoding}_{i:02}" for encoding in ("old", "new") for i in range(24)]


def steps(programs: Mapping[str, np.ndarray], name: str, memory: np.ndarray, distance: bool) -> list[Checked]:
    """Every byte may be read, only those of the output written."""
    first, count, begin, size = map(int, programs[f"{name}_where"])
    parts = (0, begin), (begin, begin + size), (begin + size, len(memory))
    areas = [Area(a, memory[a:b], frozenset(Memory), a == begin) for a, b in parts]
    return checked(first, count, Machine(name[:3], DEPTHS), areas, distance=distance)


def test_every_program_gives_the_models_bytes(programs: Mapping[str, np.ndarray]) -> None:
    for name in NAMES:
        memory = programs[f"{name}_memory"].copy()
        expected = memory.copy()
        _, _, begin, size = programs[f"{name}_where"]
        expected[begin : begin + size] = programs[f"{name}_output"]
        Chip(Machine(name[:3], DEPTHS)).run(steps(programs, name, memory, distance=False))
        assert (memory == expected).all(), name


def refused(programs: Mapping[str, np.ndarray], name: str) -> bool:
    try:
        steps(programs, name, programs[f"{name}_memory"].copy(), distance=True)
    except DeviceError as error:
        assert "reads an accumulator" in str(error)
        return True
    return False


def test_forty_read_an_accumulator_too_early(programs: Mapping[str, np.ndarray]) -> None:
    assert sum(refused(programs, name) for name in NAMES) == 40
