"""A board without a board: a pynq Device whose memory, registers and accelerator are simulated."""

from __future__ import annotations

import struct
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pynq
from pynq.buffer import PynqBuffer
from pynqmetadata.frontends import Metadata

from chai.overlay import Overlay

from .accelerator import Accelerator
from .clock import Clock
from .ddr import Buffer, BusError, Ddr
from .hardware_files import base, controller
from .interrupt_controller import Controller


@dataclass
class Counts:
    """What the driver did since ``Counter.clear``."""

    writes: Counter[str] = field(default_factory=Counter)
    reads: Counter[str] = field(default_factory=Counter)
    flushed: int = 0
    invalidated: int = 0
    allocations: int = 0


class Board(pynq.Device):
    """The Device that pynq is given. ``lose`` drops a flush or an invalidate: (kind, how many to let pass first).

    ``on_use`` is called before whatever the caller's thread does: registers, buffers, downloads. ``coherent`` is what its ports
    are, whatever the manifest says.
    """

    def __init__(
        self,
        overlay: Overlay,
        clock: Clock,
        memory: int = 64 << 20,
        exact: bool = True,
        interrupt: str = "",
        coherent: bool = False,
    ) -> None:
        super().__init__(f"board{id(self)}")
        self.name = "simulated"
        self.arch = "armv7l" if overlay.family == "zynq7000" else "aarch64"
        self.capabilities = {"REGISTER_RW": True}
        self.overlay = overlay
        # buffers above 4 GB need both words of an address
        self.memory = Ddr(0x1000_0000 if self.arch == "armv7l" else 0x8_0000_0000, memory, coherent)
        self.accelerator = self.made(exact, clock)
        self.controller = Controller(lambda: self.accelerator.line, interrupt == "edge") if interrupt else None
        self.busy = threading.RLock()  # the thread that serves interrupts comes here too
        self.on_use: Callable[[], None] = lambda: None
        self.counts = Counts()
        self.downloads = 0
        self.lose: tuple[str, int] | None = None
        self.halves = False  # a flush reaches the first half of its buffer only
        self.processor: dict[int, int] = _clocks(self.arch)

    def made(self, exact: bool, clock: Clock) -> Any:
        """The accelerator."""
        return Accelerator(self.overlay, self.memory, exact, clock)

    # -- registers

    def offset(self, address: int) -> int | None:
        """Where an address is in the accelerator's registers; None if it is outside of them."""
        offset = address - base(self.overlay)
        return offset if 0 <= offset < self.overlay.registers.window else None

    def read_registers(self, address: int, length: int) -> bytes:
        return b"".join(struct.pack("<I", self._read(a)) for a in range(address, address + length, 4))

    def _use(self) -> None:
        if threading.current_thread().name != "chai-interrupt":
            self.on_use()

    def tick(self) -> None:
        """Time has passed."""
        with self.busy:
            self.accelerator.tick()
            self._wires()

    def _wires(self) -> None:
        if self.controller:
            self.controller.look()

    def _read(self, address: int) -> int:
        with self.busy:
            value = self._read_one(address)
            self._wires()
            return value

    def _read_one(self, address: int) -> int:
        self._use()
        offset = address - controller(self.overlay)
        if self.controller and 0 <= offset < 0x1000:
            return self.controller.read(offset)
        inside = self.offset(address)
        if inside is not None:
            self.counts.reads[self.accelerator.offsets[inside]] += 1
            return int(self.accelerator.read(inside)) & 0xFFFFFFFF
        if address in self.processor or address >> 24 in (0xF8, 0xFF, 0xFD):
            return self.processor.get(address, 0)
        raise BusError(f"the host reads {address:#x}")

    def write_registers(self, address: int, data: Any) -> None:
        with self.busy:
            self._write_one(address, *struct.unpack("<I", bytes(data)))
            self._wires()

    def _write_one(self, address: int, value: int) -> None:
        self._use()
        offset = address - controller(self.overlay)
        if self.controller and 0 <= offset < 0x1000:
            self.controller.write(offset, value)
            return
        inside = self.offset(address)
        if inside is not None:
            self.counts.writes[self.accelerator.offsets[inside]] += 1
            self.accelerator.write(inside, value)
        elif address >> 24 in (0xF8, 0xFF, 0xFD):
            self.processor[address] = value
        else:
            raise BusError(f"the host writes {address:#x}")

    # -- memory

    def allocate(self, shape: Any, dtype: Any = "u4", cacheable: bool = False, **_: Any) -> PynqBuffer:
        self._use()
        assert cacheable, "the host would be slow, and past the cache that a coherent port uses"
        place = self.memory.allocate(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self.counts.allocations += 1
        view = np.frombuffer(memoryview(place.host), np.uint8)
        weakref.finalize(view, self.memory.release, place.address)  # views of views keep it
        return PynqBuffer(
            shape, dtype, buffer=view, device=self, device_address=place.address, bo=place, coherent=False
        )

    def _lost(self, kind: str) -> bool:
        if self.lose is None or self.lose[0] != kind:
            return False
        self.lose = (kind, self.lose[1] - 1)
        return self.lose[1] < 0

    def flush(self, bo: Buffer, *_: Any) -> None:
        """The whole buffer, as pynq 3.1 does."""
        self._use()
        self.counts.flushed += bo.size
        if not self._lost("flush"):
            bo.evict(bo.size // 2 if self.halves else None)

    def invalidate(self, bo: Buffer, *_: Any) -> None:
        self._use()
        self.counts.invalidated += bo.size
        if not self._lost("invalidate"):
            bo.invalidate()

    # -- bitstreams

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Any:
        handoff = Path(bitfile_name).with_suffix(".hwh")
        if not handoff.exists():
            raise RuntimeError(f"Unable to find metadata for bitstream {bitfile_name}")
        try:
            from pynq.metadata.runtime_metadata_parser import RuntimeMetadataParser
        except ImportError:  # pynq 4
            from pynqmetadata.views.runtime import RuntimeMetadataParser

        metadata = RuntimeMetadataParser(Metadata(input=str(handoff)))
        metadata.mem_dict["PSDDR"] = {
            "raw_type": 2, "used": 1, "base_address": 0, "size": self.memory.size, "type": "DDR4", "streaming": False,
            "idx": 0, "tag": "PSDDR", "fullpath": "PSDDR",
        }  # fmt: skip
        metadata.xclbin_data = metadata.bin_data = metadata.dtbo_data = None
        return metadata

    def download(self, bitstream: Any, parser: Any = None) -> None:
        from pynq.pl_server.embedded_device import EmbeddedDevice, parse_bit_header

        self._use()
        parse_bit_header(Path(bitstream.bitfile_name).read_bytes())
        self.downloads += 1
        self.accelerator.power_on()
        if parser is not None:
            EmbeddedDevice.set_axi_port_width(self, parser)  # pynq's own, by what the handoff says
        super().post_download(bitstream, parser, self.name)

    def gen_cache(self, bitstream: Any, parser: Any = None) -> None:
        """Nothing: what pynq would keep in its own folder."""


def _clocks(arch: str) -> dict[int, int]:
    """The processor's clock registers as they stand after a boot."""
    if arch == "armv7l":
        divided = 1 << 20 | 10 << 8
        return {0xF8000100: 40 << 12, 0xF8000104: 32 << 12, 0xF8000108: 20 << 12, 0xF8000120: 2 << 8} | dict.fromkeys(
            (0xF8000170, 0xF8000180, 0xF8000190, 0xF80001A0), divided
        )
    pll, divided = 90 << 8 | 1 << 16, 1 << 24 | 1 << 16 | 15 << 8
    registers = dict.fromkeys((0xFF5E0020, 0xFF5E0030, 0xFD1A0020, 0xFD1A002C, 0xFD1A0038), pll)
    return registers | dict.fromkeys((0xFF5E00C0, 0xFF5E00C4, 0xFF5E00C8, 0xFF5E00CC), divided) | {0xFD1A0060: 1 << 8}
