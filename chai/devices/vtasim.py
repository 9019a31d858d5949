"""vtasim: a simulator of VTA that runs the very instructions a board would."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..blob import Array
from ..driver.memory import NONE, BlobSet
from ..errors import DeviceError
from ..overlay import names
from ..tasks.work import Work
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ..util.sharing import Mutex
from ..vta.architecture import segment
from ..vta.checks import Checked
from ..vta.program import VtaSegment
from ..vta.simulator import Chip
from .base import Device, Program, Ran
from .placed import PlacedProgram

ARCHITECTURE = "vta"
BEGIN, PAGE = 1 << 20, 4096  # where buffers lie in the simulated memory, bytes


class SimulatedBuffers:
    """The regions of a segment in the simulated memory; further ones come after ``end``.

    ``steps``  the checked program
    """

    steps: Sequence[Checked] = ()

    def __init__(self, sizes: Mapping[int, int], first: SimulatedBuffers | None) -> None:
        self.own = sizes.keys()
        self.bytes: dict[int, Array] = {**first.bytes} if first else {}
        self.addresses: dict[int, int] = {**first.addresses} if first else {}
        self.bytes.update((region, np.zeros(size, np.uint8)) for region, size in sizes.items())
        end = first.end if first else BEGIN
        for region, size in sizes.items():
            self.addresses[region] = end
            end += round_up(size, PAGE)
        self.end: int = end
        if first:
            first.end = end

    def flush(self, regions: Collection[int]) -> None:
        """Do nothing: there is no cache."""

    def invalidate(self, regions: Collection[int]) -> None:
        """Do nothing: there is no cache."""

    def free(self) -> None:
        """Release the bytes."""
        self.bytes.clear()
        self.steps = ()


class SimulatedProgram(PlacedProgram):
    """Each set is checked once, since neither its bytes nor its addresses change between runs."""

    segment: VtaSegment

    def __init__(self, work: Work) -> None:
        super().__init__(work.chain or segment(replace(work, writes=work.writes or work.shapes)), work.views)
        self._chip = Chip(self.segment.machine)
        self._busy = Mutex()
        self._sets.append(self._placed())  # what is wrong with a program is found when it is compiled

    def _memory(self, first: SimulatedBuffers | None) -> SimulatedBuffers:
        return SimulatedBuffers(self.segment.further if first else self.segment.sizes, first)

    def _check(self, memory: SimulatedBuffers) -> None:
        memory.steps = self.segment.checked(memory.addresses, memory.bytes)

    def run_in(
        self, used: BlobSet, blobs: dict[str, Array], packed: Collection[str] = NONE, unpacked: Collection[str] = NONE
    ) -> Ran:
        memory: Any = used.memory
        with self._busy:
            used.run(blobs, self.views, lambda: self._chip.run(memory.steps), packed, unpacked)
        return Ran()


class VtaSimulator(Device):
    """Needs numpy only; for overlays whose architecture is VTA."""

    fixed = True
    placed = True
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
