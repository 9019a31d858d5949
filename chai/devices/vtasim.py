"""vtasim: a simulator of VTA that runs the very instructions a board would."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ..driver.memory import place, run
from ..errors import DeviceError
from ..overlay import names
from ..tasks.work import Work
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ..util.sharing import Mutex
from ..vta.architecture import segment
from ..vta.simulator import Chip
from .base import Device, Program, Ran

if TYPE_CHECKING:
    from ..blob import Array
    from ..vta.program import VtaSegment

ARCHITECTURE = "vta"
BEGIN, PAGE = 1 << 20, 4096  # where buffers lie in the simulated memory, bytes


class SimulatedBuffers:
    """The regions of a segment in the simulated memory."""

    def __init__(self, segment: VtaSegment) -> None:
        self.bytes = {region: np.zeros(size, np.uint8) for region, size in segment.sizes.items()}
        self.addresses: dict[int, int] = {}
        end = BEGIN
        for region, size in segment.sizes.items():
            self.addresses[region] = end
            end += round_up(size, PAGE)

    def flush(self, regions: Collection[int]) -> None:
        """Do nothing: there is no cache."""

    def invalidate(self, regions: Collection[int]) -> None:
        """Do nothing: there is no cache."""


class SimulatedProgram(Program):
    """One program and its buffers; it is checked once, since neither its bytes nor its addresses change between runs."""

    def __init__(self, work: Work) -> None:
        self.segment: VtaSegment = work.chain or segment(replace(work, writes=work.writes or work.shapes))
        self.views, self.memory = work.views, SimulatedBuffers(self.segment)
        place(self.segment, self.memory)
        self.steps = self.segment.checked(self.memory.addresses, self.memory.bytes)
        self.chip = Chip(self.segment.machine)
        self._busy = Mutex()  # threads that share a network have one program, with one memory

    def run(self, blobs: dict[str, Array]) -> Ran:
        with self._busy:
            run(self.segment, self.memory, blobs, self.views, lambda: self.chip.run(self.steps))
        return Ran()


class VtaSimulator(Device):
    """Needs numpy only; for overlays whose architecture is VTA."""

    fixed = True
    hidden = True
    word = "simulated"

    def status(self) -> tuple[bool, str]:
        return True, "this host, in numpy; for overlays " + ", ".join(names(ARCHITECTURE))

    def compile(self, work: Work) -> Program:
        if work.overlay.architecture != ARCHITECTURE:
            other = f"--overlay {' or '.join(names(ARCHITECTURE))}"
            raise DeviceError(
                f"device vtasim simulates VTA, and overlay {work.overlay.name} is no VTA",
                hint=other
                if work.chain is None
                else f"--device {work.overlay.simulator}, or compile it again with {other}",
            )
        return SimulatedProgram(work)


device = VtaSimulator("vtasim", "a simulator of VTA: runs a board's instructions")
