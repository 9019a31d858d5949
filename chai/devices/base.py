"""What every device is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..codegen.chain import Chain
    from ..overlay import Overlay
    from ..tasks import Task


@dataclass(frozen=True)
class Work:
    """What a device is given: Tasks in order, and the blobs they work on.

    ``shapes``  of every blob of the Tasks, and of the wholes they are parts of
    ``places``  blobs that are parts of another: (blob, first channel)
    ``reads``   blobs that are there before a run
    ``writes``  blobs that are asked for; a device that works in the host's memory need not know either
    ``chain``   the same Tasks as descriptors, where they were read from a file
    """

    overlay: Overlay
    tasks: Sequence[Task]
    shapes: Mapping[str, Shape]
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict)
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

    ``hidden``  its Programs add only the blobs they are asked for: the others stay in a memory of its own
    ``alone``   one process at a time can have it
    """

    name: str
    summary: str
    fixed: ClassVar[bool] = False
    hidden: ClassVar[bool] = False
    alone: ClassVar[bool] = False

    def status(self) -> tuple[bool, str]:
        """Whether it can be used here, and on what or why not."""
        raise NotImplementedError

    def compile(self, work: Work) -> Program:
        """A Program for these Tasks. Raises DeviceError if the device cannot be used."""
        raise NotImplementedError(self.name)

    def leave(self) -> None:
        """Let other processes have it, unless a Program that is not closed is still on it. Most have nothing to leave."""
