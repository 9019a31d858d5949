"""vtasim: a simulator of VTA that runs the very instructions a board would."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import DeviceError
from ..overlay import names
from ..tasks.work import Work
from ..util.sharing import Mutex
from ..vta.architecture import segment
from ..vta.checks import Checked
from ..vta.program import VtaSegment
from ..vta.simulator import Chip
from .base import Device, Program
from .placed import PlacedProgram, SimulatedBuffers

ARCHITECTURE = "vta"


class CheckedBuffers(SimulatedBuffers):
    """Memory with a program, whose ``steps`` are checked."""

    steps: Sequence[Checked] = ()

    def free(self) -> None:
        super().free()
        self.steps = ()


class SimulatedProgram(PlacedProgram):
    """Each set is checked once, since neither its bytes nor its addresses change between runs."""

    segment: VtaSegment
    _memory = CheckedBuffers

    def __init__(self, work: Work) -> None:
        super().__init__(work.chain or segment(work._replace(writes=work.writes or work.shapes)), work.views)
        self._chip = Chip(self.segment.machine)
        self._busy = Mutex()
        self._sets.append(self._placed())  # what is wrong with a program is found when it is compiled

    def _check(self, memory: CheckedBuffers) -> None:
        memory.steps = self.segment.checked(memory.addresses, memory.bytes)

    def _start(self, memory: CheckedBuffers) -> None:
        with self._busy:
            self._chip.run(memory.steps)


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
