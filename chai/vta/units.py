"""The three units of VTA and the tokens between them: in which order a program's instructions run.

Each unit takes its own instructions in order, from a queue that one fetch unit fills in the program's order. Only tokens
order the units, so a program can hang, or leave tokens in the hardware for the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from ..errors import DeviceError
from .isa import Finish, Instruction, Load, Memory, Store


class Unit(IntEnum):
    """The units, each with the one before and the one after it."""

    LOAD, COMPUTE, STORE = range(3)


Queue = tuple[int, int]  # of tokens, from one unit to another


class Dispatch(NamedTuple):
    """An instruction as a unit runs it.

    ``number``    of the instruction in its program
    ``sequence``  of the instruction among those of its unit, from 1
    ``after``     the numbers of the instructions that gave it tokens
    ``finished``  how many instructions of each unit have surely finished before it starts
    """

    number: int
    instruction: Instruction
    unit: Unit
    sequence: int
    after: tuple[int, ...]
    finished: tuple[int, ...]


def unit_of(instruction: Instruction) -> Unit:
    if isinstance(instruction, Store):
        return Unit.STORE
    loads = isinstance(instruction, Load) and instruction.memory in (Memory.INP, Memory.WGT)
    return Unit.LOAD if loads else Unit.COMPUTE


def steps(program: Sequence[Instruction], instructions: int, tokens: int) -> list[Dispatch]:
    """Return the instructions in an order in which the units can run them.

    ``instructions`` is the room of each unit's queue of instructions, ``tokens`` that of each queue of tokens. Raises
    DeviceError for a program that hangs, leaves tokens over, or sets the done flag before everything has finished.
    """
    _check_end(program)
    flow = _Flow(program, tokens)
    waiting: list[deque[int]] = [deque() for _ in Unit]
    fetched, moved = 0, True
    while moved:
        moved = False
        while fetched < len(program) and len(waiting[flow.units[fetched]]) < instructions:
            waiting[flow.units[fetched]].append(fetched)
            fetched, moved = fetched + 1, True
        for queue in waiting:
            while queue and flow.run(queue[0]):
                queue.popleft()
                moved = True
    stuck = [queue[0] for queue in waiting if queue]
    if stuck:
        reasons = [f"instruction {i} ({type(program[i]).__name__.upper()}) {flow.lack(*flow.queues(i))}" for i in stuck]
        raise DeviceError(f"the program would hang: {', '.join(reasons)}")
    for (source, target), queue in flow.tokens.items():
        if queue:
            raise DeviceError(
                f"the program leaves {len(queue)} tokens from {Unit(source).name} to {Unit(target).name} over"
            )
    last = flow.steps[len(program) - 1]
    counts = [flow.units.count(unit) for unit in Unit]
    counts[Unit.COMPUTE] -= 1
    for unit in Unit:
        if last.finished[unit] < counts[unit]:
            raise DeviceError(f"FINISH does not wait for the last instructions of {unit.name}")
    return [*flow.steps.values()]


def _check_end(program: Sequence[Instruction]) -> None:
    for number, instruction in enumerate(program):
        if isinstance(instruction, Finish):
            if number + 1 < len(program):
                raise DeviceError(f"instruction {number}: FINISH is not the last one of {len(program)}")
            if any(instruction.tokens):
                raise DeviceError(f"instruction {number}: FINISH takes and gives no tokens")
            return
    raise DeviceError(f"the program of {len(program)} instructions has no FINISH")


class _Flow:
    """Tokens on their way: each is the number of the instruction that gave it."""

    def __init__(self, program: Sequence[Instruction], room: int) -> None:
        self.program, self.room = program, room
        self.units = [unit_of(instruction) for instruction in program]
        self.tokens: dict[Queue, deque[int]] = {
            (source, target): deque() for source in Unit for target in Unit if abs(source - target) == 1
        }
        self.steps: dict[int, Dispatch] = {}  # by number, in the order in which they run
        self.counts = [0] * len(Unit)
        self.finished = [[0] * len(Unit) for _ in Unit]  # before the next instruction of each unit

    def queues(self, number: int) -> tuple[list[Queue], list[Queue]]:
        """Return the queues that an instruction takes tokens from, and those it gives tokens to."""
        unit, (pop_prev, pop_next, push_prev, push_next) = self.units[number], self.program[number].tokens
        pops: list[Queue] = [(other, unit) for other, flag in ((unit - 1, pop_prev), (unit + 1, pop_next)) if flag]
        pushes: list[Queue] = [(unit, other) for other, flag in ((unit - 1, push_prev), (unit + 1, push_next)) if flag]
        for queue in (*pops, *pushes):
            if queue not in self.tokens:
                side = "before" if min(queue) < unit else "after"
                raise DeviceError(f"instruction {number}: there is no unit {side} {unit.name} for its tokens")
        return pops, pushes

    def run(self, number: int) -> bool:
        """Run the next instruction of its unit, if its tokens are there and the ones it gives have room."""
        pops, pushes = self.queues(number)
        if self.lack(pops, pushes):
            return False
        unit = self.units[number]
        after = tuple([self.tokens[queue].popleft() for queue in pops])
        known = self.finished[unit]
        for giver in after:
            step = self.steps[giver]
            known[:] = map(max, known, step.finished)
            known[step.unit] = max(known[step.unit], step.sequence)
        self.counts[unit] += 1
        step = Dispatch(number, self.program[number], unit, self.counts[unit], after, tuple(known))
        known[unit] = step.sequence
        self.steps[number] = step
        for queue in pushes:
            self.tokens[queue].append(number)
        return True

    def lack(self, pops: list[Queue], pushes: list[Queue]) -> str:
        """Return why an instruction does not run that takes and gives these tokens, as words; "" if it does."""
        for queue in pops:
            if not self.tokens[queue]:
                return f"waits for a token from {Unit(queue[0]).name}"
        for queue in pushes:
            if len(self.tokens[queue]) >= self.room:
                return f"has no room for its token to {Unit(queue[1]).name}"
        return ""
