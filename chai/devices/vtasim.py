"""vtasim: a simulator of VTA that runs the very instructions a board would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..codegen.memory_map import FIXED
from ..errors import DeviceError
from ..overlay import names
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ..vta.architecture import segment
from ..vta.segment import Segment
from ..vta.simulator import Chip
from .base import Device, Program, Ran, Work

if TYPE_CHECKING:
    from ..blob import Array

ARCHITECTURE = "vta"
BEGIN, PAGE = 1 << 20, 4096  # where buffers lie in the simulated memory, bytes


class SimulatedProgram(Program):
    """One program and its buffers in memory; the checks are made once, since neither changes between runs."""

    def __init__(self, work: Work) -> None:
        self.segment: Segment = segment(
            work.overlay, work.tasks, work.shapes, work.views, work.reads, work.writes or work.shapes
        )
        base, self.memory = {}, {}
        end = BEGIN
        for region, size in self.segment.sizes.items():
            base[region], self.memory[region] = end, np.zeros(size, np.uint8)
            end += round_up(size, PAGE)
        self.segment.fill(base, self.memory[FIXED])
        self.steps = self.segment.checked(base, self.memory)
        self.chip = Chip(self.segment.machine)

    def run(self, blobs: dict[str, Array]) -> Ran:
        for blob in self.segment.regions.given:
            self.segment.store(blob, blobs[blob], self.memory)
        self.chip.run(self.steps)
        for blob, first, channels in self.segment.wanted:
            codes = blobs.setdefault(blob, np.empty(self.segment.shapes[blob], np.int8))
            self.segment.load(blob, first, codes[:, first : first + channels], self.memory)
        return Ran()


class VtaSimulator(Device):
    """Needs numpy only; for overlays whose architecture is VTA."""

    fixed = True
    hidden = True

    def status(self) -> tuple[bool, str]:
        return True, "this host, in numpy; for overlays " + ", ".join(names(ARCHITECTURE))

    def compile(self, work: Work) -> Program:
        if work.overlay.architecture != ARCHITECTURE:
            raise DeviceError(
                f"device vtasim simulates VTA, and overlay {work.overlay.name} is no VTA",
                hint="--overlay " + " or ".join(names(ARCHITECTURE)),
            )
        return SimulatedProgram(work)


device = VtaSimulator("vtasim", "a simulator of VTA: runs a board's instructions")
