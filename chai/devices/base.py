"""Device: what a network can run on, and what it is given to run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from ..blob import Array, Shape, View
    from ..codegen.chain import Chain
    from ..overlay import Overlay
    from ..tasks import Task


@dataclass(frozen=True)
class Work:
    """What a device is given: Tasks in order, and the blobs they work on.

    ``shapes``  of every blob of the Tasks, and of the wholes they are parts of
    ``views``   blobs that are parts of another
    ``reads``   blobs that are there before a run
    ``writes``  blobs that are asked for; a device that works in the host's memory need not know either
    ``chain``   the same Tasks as descriptors, where they were read from a file
    """

    overlay: Overlay
    tasks: Sequence[Task]
    shapes: Mapping[str, Shape]
    views: Mapping[str, View] = field(default_factory=dict)
    reads: Collection[str] = ()
    writes: Collection[str] = ()
    chain: Chain | None = None


class Ran(NamedTuple):
    """Milliseconds of a run: of each Task, or None where only the whole can be timed; and of the device at work, by a clock
    of its own, or None where it has none."""

    tasks: list[float] | None = None
    device: float | None = None


class Program:
    """Tasks compiled for a device, for blobs of certain shapes."""

    def run(self, blobs: dict[str, Array]) -> Ran:
        """Run every Task: codes (int8, NCHW) of its reads are in ``blobs``, those of its writes are added."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back what it holds on the device; a run after that takes it anew."""


@dataclass(frozen=True)
class Device:
    """``name`` is what users type, ``summary`` one line about it; ``fixed`` devices compute Tasks in fixed point.

    How to add a device: one file (or folder) in ``chai/devices`` that carries its name and ends with
    ``device = Mine("mine", "one line about it")``. There is no list to keep; it is imported when somebody asks for it.

    1. ``status`` says whether it can be used here, without starting it.
    2. ``compile`` takes a Work, the Tasks of one segment with shapes, views and the blobs that go in and out, and returns a
       Program. ``codegen.chain.chain(...)`` turns the same into descriptors and a memory map for real hardware.
    3. ``Program.run`` is given codes (int8, NCHW) and adds those it is asked for, bit for bit as ``Task.define`` has them;
       ``close`` gives back what it holds.
    4. ``chai devices --test --device mine`` compares it with the definitions.

    ``hidden``  its Programs add only the blobs they are asked for: the others stay in a memory of its own
    ``alone``   one process at a time can have it
    """

    name: str
    summary: str
    fixed: ClassVar[bool] = False
    hidden: ClassVar[bool] = False
    alone: ClassVar[bool] = False

    def status(self) -> tuple[bool, str]:
        """Return whether it can be used here, and on what or why not."""
        raise NotImplementedError

    def compile(self, work: Work) -> Program:
        """Return a Program for these Tasks. Raises DeviceError if the device cannot be used."""
        raise NotImplementedError(self.name)

    def leave(self) -> None:
        """Let other processes have it, unless a Program that is not closed is still on it. Most have nothing to leave."""
