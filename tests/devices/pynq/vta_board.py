"""VTA on the simulated board: four blocks of registers, and a program that runs from the bytes in memory.

It does what the hardware does, of which nothing is refused: it has no ID, no error and no reset but a download. Nobody may give
back a buffer while a program runs, nor touch a register before a download.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pynq

from chai.overlay import Overlay
from chai.vta.checks import Area, Checked, checked
from chai.vta.isa import BYTES, ENTRY_BYTES, Memory, Store, decode
from chai.vta.simulator import Chip

from .board import Board
from .clock import Clock
from .ddr import BusError, Ddr

ORDER = [
    "fetch.count", "fetch.address", "load.inp", "load.wgt", "compute.uop", "compute.acc", "store.out",
    "fetch.control", "load.control", "compute.control", "store.control",
]  # fmt: skip


class Blocks:
    """The blocks' registers, by names such as ``fetch.count``, and the program, which ``takes`` seconds of ``clock``."""

    def __init__(self, overlay: Overlay, memory: Ddr, clock: Clock) -> None:
        about = overlay.machine.registers
        self.machine, self.memory, self.clock = overlay.machine.machine, memory, clock
        self.offsets = {
            about["blocks"][block] + offset: f"{block}.{name}"
            for block in ("fetch", "load", "compute", "store")
            for name, offset in {"control": about["control"], **about[block]}.items()
        }
        self.takes = 50e-6
        self.loaded = False
        self.clears = True  # whether a start clears the done flag
        self.hangs_at: int | None = None  # an instruction that never ends
        self.deaf = False  # it ends at once, and computes nothing
        self.corrupt: Callable[[], None] = lambda: None
        self.on_look: Callable[[], None] = lambda: None
        self.log: list[tuple[str, int]] = []  # what was written
        self.wrong: list[str] = []  # buffers that were given back too early
        self.ran = 0
        self._steps: dict[bytes, list[Checked]] = {}
        self.power_on()
        self.loaded = False

    def power_on(self) -> None:
        """As after a download."""
        self.values = dict.fromkeys(self.offsets.values(), 0)
        self.chip = Chip(self.machine)
        self.busy, self.loaded, self.ends = False, True, 0.0

    def read(self, address: int) -> int:
        assert self.loaded, "a register of an unknown design is read"
        if self.offsets[address] == "compute.done":
            self.on_look()
            self.tick()
        return self.values[self.offsets[address]]

    def write(self, address: int, value: int) -> None:
        assert self.loaded, "a register of an unknown design is written"
        name = self.offsets[address]
        self.log.append((name, value))
        if name == "compute.done":
            raise BusError("done cannot be written")
        self.values[name] = value
        if name == "fetch.control" and value & 1:
            assert not self.busy, "started while busy"
            self.busy, self.ends = True, self.clock.now + self.takes
            self.values["compute.done"] *= not self.clears

    def tick(self) -> None:
        """Be done if it is time; the other blocks work only once they were started."""
        started = all(self.values[f"{block}.control"] == 0x81 for block in ("load", "compute", "store"))
        if self.busy and started and self.clock.now >= self.ends:
            self.busy = not self._run()
            self.values["compute.done"] |= not self.busy

    def _run(self) -> bool:
        """Run the program; return whether it ends."""
        for step in () if self.deaf else self._program():
            if step.step.number == self.hangs_at:
                self.ends = np.inf
                return False
            self.chip.run([step])
            if isinstance(step.instruction, Store) and step.instruction.columns:
                self.memory.written(step.instruction.dram * ENTRY_BYTES[Memory.OUT])
        self.corrupt()
        self.ran += 1
        return True

    def _program(self) -> list[Checked]:
        """The program in memory; the checks know nothing but which buffer it is in, and which its STOREs are to."""
        address, count = self.values["fetch.address"], self.values["fetch.count"]
        home = self.memory.around(address)
        words = decode(bytes(self.memory.at(address, count * BYTES)), self.machine.encoding)
        stores = [word.dram * ENTRY_BYTES[Memory.OUT] for word in words if isinstance(word, Store) and word.columns]
        stored = {self.memory.around(at).address for at in stores} - {home.address}
        key = hashlib.sha256(home.device.tobytes() + repr((address, count, sorted(self.memory.held))).encode()).digest()
        if key not in self._steps:
            areas = [
                Area(b.address, b.device, frozenset(Memory), writable=b.address in stored)
                for b in self.memory.held.values()
            ]
            self._steps = {key: checked(address, count, self.machine, areas)}
        return self._steps[key]

    def forget(self) -> None:
        """Forget where buffers are."""
        self._steps.clear()

    @property
    def due(self) -> float:
        """When something happens next without the host."""
        return self.ends if self._bit("busy") else np.inf

    def _bit(self, name: str) -> bool:
        return name == "busy" and self.busy


class VtaBoard(Board):
    """The simulated board with VTA's published design; ``loads`` are what was downloaded: digest and MHz of FCLK0."""

    accelerator: Any

    def __init__(self, overlay: Overlay, clock: Clock, *, coherent: bool = True, **options: Any) -> None:
        super().__init__(overlay, clock, coherent=coherent, **options)

    def made(self, exact: bool, clock: Clock) -> Blocks:
        self.loads: list[tuple[str, float]] = []
        self.refuses: str = ""  # an error of every download
        self.memory.on_release = self._released
        return Blocks(self.overlay, self.memory, clock)

    def _released(self) -> None:
        self.accelerator.forget()
        if self.accelerator.busy:
            self.accelerator.wrong.append("a buffer was given back while the program ran")

    def offset(self, address: int) -> int | None:
        return address if address in self.accelerator.offsets else None

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Any:
        raise AssertionError("there is no handoff")

    def download(self, bitstream: Any, parser: Any = None) -> None:
        """As pynq does it without a handoff."""
        from pynq.pl_server.embedded_device import DEFAULT_XCLBIN, parse_bit_header
        from pynq.pl_server.xclbin_parser import XclBin

        self._use()
        if self.refuses:
            raise RuntimeError(self.refuses)
        assert parser is None and not bitstream.dtbo
        path = Path(bitstream.bitfile_name)
        assert [p.name for p in path.parent.iterdir()] == [path.name], "something lies beside it"
        data = path.read_bytes()
        parse_bit_header(data)
        self.downloads += 1
        self.loads.append((hashlib.sha256(data).hexdigest(), float(pynq.Clocks.fclk0_mhz)))
        self.accelerator.power_on()
        pynq.Device.post_download(self, bitstream, XclBin(xclbin_data=DEFAULT_XCLBIN), self.name)
