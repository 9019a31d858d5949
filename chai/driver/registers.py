"""An accelerator's registers by name, and what they say of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

from ..codegen.dependencies import Finished
from ..errors import DeviceError
from ..overlay import Overlay
from ..overlay.architecture import Bus
from ..tasks import Task
from ..text import number_of

REFUSES = (
    "it refuses every start until the bitstream is loaded again, which the next pass does; if it stays so, power cycle"
)
Kind = TypeVar("Kind", bound=DeviceError)


class Stopped(DeviceError):
    """The accelerator has refused a descriptor or met a fault."""


class Late(DeviceError):
    """A chain has not ended."""


class Registers:
    """The registers of an overlay, on a ``bus``."""

    def __init__(self, overlay: Overlay, bus: Bus) -> None:
        self.overlay = overlay
        self.bus = bus

    @cached_property
    def offsets(self) -> dict[str, int]:
        """The offset of each register."""
        return {register.name: register.offset for register in self.overlay.registers.list}

    @cached_property
    def masks(self) -> dict[tuple[str, str], int]:
        """A mask of each part of a register."""
        return {(r.name, bits.name): r.mask(bits.name) for r in self.overlay.registers.list for bits in r.bits}

    def read(self, name: str) -> int:
        return int(self.bus.read(self.offsets[name]))

    def write(self, name: str, value: int) -> None:
        self.bus.write(self.offsets[name], value)

    def bits(self, name: str, part: str, value: int) -> int:
        mask = self.masks[name, part]
        return (value & mask) // (mask & -mask)

    def mask(self, name: str, *parts: str) -> int:
        return sum([self.masks[name, part] for part in parts])

    def start(self, address: int, count: int) -> None:
        """Start the chain of ``count`` descriptors at ``address``."""
        self.write("CHAIN_LO", address & 0xFFFFFFFF)
        self.write("CHAIN_HI", address >> 32)
        self.write("COUNT", count)
        self.write("CONTROL", self.masks["CONTROL", "start"])

    def cycles(self) -> int:
        return self.read("CYCLES") | self.read("CYCLES_HI") << 32  # reading the first latches the second

    def done(self) -> dict[str, int]:
        """Return the Tasks that each engine has finished."""
        value = self.read("DONE")
        return {engine: self.bits("DONE", engine, value) for engine in Finished._fields}

    def failed(self, tasks: Sequence[Task]) -> Stopped:
        """Return the error of a chain that has stopped, with the name of the layer."""
        value = self.read("ERROR")
        cause, tag = self.bits("ERROR", "cause", value), self.bits("ERROR", "tag", value)
        known = self.overlay.registers.errors
        words = known[cause] if cause < len(known) else f"cause {cause}"
        ended = not self.bits("STATUS", "busy", self.read("STATUS"))
        hint = "CHAI_CHECK=1 runs each layer on its own" if ended else REFUSES
        return _named(Stopped, tasks, tag, f"the accelerator stopped: {words}", hint)

    def late(self, tasks: Sequence[Task], waited: str = "") -> Late:
        """Return the error of a chain that has not ended after ``waited``, or has stopped without an error."""
        done = self.done()
        finished = sum(done.values())
        # the oldest unfinished Task waits for no other, so it is the one that does not end
        oldest = len(tasks)
        for engine, count in done.items():
            mine = [i for i, task in enumerate(tasks) if task.engine == engine]
            oldest = min([oldest, *mine[count : count + 1]])
        what = f"not done after {waited}" if waited else "the accelerator stopped without a word"
        message = f"{what}, {finished} of {number_of(len(tasks), 'Task')} completed"
        return _named(Late, tasks, oldest, message, "it was reset; if it stays so, power cycle")


def _named(kind: type[Kind], tasks: Sequence[Task], index: int, message: str, hint: str) -> Kind:
    if index >= len(tasks):
        return kind(message, hint=hint)
    task = tasks[index]
    return kind(f"layer {task.origin[0]!r} ({task.kind}): {message}", layer=task.origin[0], hint=hint)
