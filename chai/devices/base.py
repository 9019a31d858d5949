"""Device: the interface of anything that runs a network's segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from ..blob import Array

if TYPE_CHECKING:
    from ..codegen.memory_map import Buffers
    from ..kernels.native.program import NativeProgram
    from ..overlay import Overlay
    from ..tasks.unfold import Unfold
    from ..tasks.work import Work


class Ran(NamedTuple):
    """Milliseconds of a run.

    ``tasks``   of each Task; None if only the whole is timed
    ``device``  by the device's own clock; None if it has none
    """

    tasks: Sequence[float] | None = None
    device: float | None = None


class Program:
    """Tasks compiled for a device, for blobs of certain shapes."""

    def run(self, blobs: dict[str, Array]) -> Ran:
        """Run every Task: ``blobs`` holds the codes (int8, NCHW) of the inputs, and those of the outputs are added."""
        raise NotImplementedError

    @property
    def native(self) -> NativeProgram | None:
        """Return its Tasks as a table in C, of which a larger one can be made; most devices have none."""
        return None

    def close(self) -> None:
        """Release its resources on the device; a later run acquires them again."""


@dataclass(frozen=True, eq=False)
class Device:
    """``name`` is what users type, ``summary`` one line about it; ``fixed`` devices compute Tasks in fixed point.

    How to add a device: add a file (or folder) of its name to ``chai/devices`` that ends with
    ``device = Mine("mine", "one line about it")``. It needs no registration and is imported on first use.

    1. ``status`` returns whether it can be used here, without starting it.
    2. ``compile`` takes the Work of one segment and returns a Program.
       ``codegen.compile.chain`` turns it into descriptors and a memory map for real hardware.
    3. ``Program.run`` reads the inputs' codes (int8, NCHW) and adds the outputs' codes, bit for bit as ``Task.define``;
       ``close`` releases its resources. With a memory of its own it extends ``devices.placed.PlacedProgram``.
    4. ``chai devices --test --device mine`` compares it with the definitions.

    ``placed``  its Programs are PlacedPrograms, in whose memory the host converts blobs
    ``hidden``  its Programs add only the outputs: other blobs stay in its own memory
    ``alone``   only one process at a time can use it
    ``word``    what the times of an overlay's steps are if they are not the overlay's own: "emulated"
    """

    name: str
    summary: str
    fixed: ClassVar[bool] = False
    placed: ClassVar[bool] = False
    hidden: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    word: ClassVar[str] = ""

    def status(self) -> tuple[bool, str]:
        """Return whether it can be used here, and on which hardware or why not."""
        raise NotImplementedError

    def reads_plain(self, unfold: Unfold, channels: int) -> bool:
        """Return whether it is faster on a network input of so many channels as it is, not unfolded as the schedule says."""
        return False

    def compile(self, work: Work) -> Program:
        """Return a Program for these Tasks. Raises DeviceError if the device cannot be used."""
        raise NotImplementedError(self.name)

    def buffers(self, overlay: Overlay, size: int) -> Buffers:
        """Return a buffer of so many bytes, region 0, that host and accelerator share; a board has some. Raises DeviceError."""
        raise NotImplementedError(self.name)

    def about(self, overlay: Overlay) -> list[tuple[str, str]]:
        """Return names and values of what runs an overlay here, for reports to others; most devices are the same anywhere."""
        return []

    def checks(self, overlay: Overlay) -> Iterator[tuple[str, str]]:
        """Yield names of what results do not show, after some Tasks have run, and what is wrong with it; "" if nothing is.

        Raises DeviceError.
        """
        yield from ()

    def leave(self) -> None:
        """Release it for other processes, unless a Program on it is still open. Most devices have nothing to release."""
