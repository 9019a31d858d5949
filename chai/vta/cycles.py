"""Cycle model of VTA: nothing of it was measured.

A GEMM takes one cycle a micro-op, an ALU instruction two, each some more to begin; all units share one port to memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, prod
from typing import NamedTuple

from ..blob import Shape
from ..overlay import Overlay
from ..overlay.layout import planes
from ..tasks import Task
from ..tasks.conv import Conv
from ..tasks.pool import Pool
from .checks import Machine
from .isa import ENTRY_BYTES, Alu, Gemm, Instruction, Load, Store
from .units import Unit, steps


@dataclass(frozen=True)
class Rates:
    """Cycles of a micro-op of each kind and to begin an instruction; ``bytes`` of memory per cycle for all units."""

    gemm: int
    alu: int
    start: int
    bytes: float


class ProgramCycles(NamedTuple):
    """Cycles of a program: to its end, of GEMM micro-ops, of ALU micro-ops, of moving bytes, and to the end of each Task."""

    total: int
    gemm: int
    alu: int
    moving: int
    ends: tuple[int, ...] = ()


def cycles(overlay: Overlay, task: Task, shapes: Mapping[str, Shape]) -> int:
    """Estimate the clock cycles of a Task from its sizes alone, without lowering it, for the choices of the planner."""
    layout = overlay.layout
    rates: Rates = overlay.machine.rates
    n, c, *_ = shapes[task.inputs[0]]
    _, m, oh, ow = shapes[task.output]
    positions = n * oh * ow
    if isinstance(task, Conv):
        products = prod(task.window.kernel) * planes(m, layout) * planes(ceil(c / task.group), layout)
        return ceil(positions * (products * rates.gemm + planes(m, layout) * (1 + 4 * rates.alu)))
    if isinstance(task, Pool):
        return ceil(positions * planes(c, layout) * (2 + (1 + prod(task.window.kernel)) * rates.alu))
    return ceil(positions * planes(c, layout) * (1 + len(task.inputs) + 7 * rates.alu))


def times(program: Sequence[Instruction], machine: Machine, rates: Rates, tasks: Sequence[int] = ()) -> ProgramCycles:
    """Return the modelled cycles of a program: units wait for tokens, for themselves and for the port to memory.

    ``tasks`` are the numbers of instructions when each Task has ended.
    """
    ends = [0.0] * len(program)
    free = dict.fromkeys(Unit, 0.0)
    port = 0.0
    spent = dict.fromkeys((Gemm, Alu, Load), 0.0)
    for step in steps(program, machine.instructions, machine.tokens):
        begin = max([free[step.unit], *(ends[i] for i in step.after)])
        instruction = step.instruction
        if isinstance(instruction, (Gemm, Alu)):
            one = rates.gemm if isinstance(instruction, Gemm) else rates.alu
            work = instruction.outer * instruction.inner * (instruction.end - instruction.first) * one
            spent[type(instruction)] += work
            end = begin + work + rates.start
        elif isinstance(instruction, (Load, Store)) and instruction.columns:
            moving = instruction.rows * instruction.columns * ENTRY_BYTES[instruction.memory] / rates.bytes
            spent[Load] += moving
            port = max(port, begin) + moving
            end = port + rates.start
        else:
            end = begin + 1
        free[step.unit] = ends[step.number] = end
    after = [0.0, *accumulate(ends, max)]
    by_task = tuple(ceil(after[count]) for count in tasks)
    return ProgramCycles(ceil(after[-1]), ceil(spent[Gemm]), ceil(spent[Alu]), ceil(spent[Load]), by_task)
