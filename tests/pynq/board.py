"""A board without a board: a pynq Device whose memory, registers and accelerator are simulated.

Host and accelerator see memories of their own until a buffer is flushed or invalidated, so what a real cache would hide
on most days fails every time. The accelerator knows nothing of chai's plans: it fetches descriptors from its memory,
decodes them, and does what the Tasks' definitions say.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import threading
import tty
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pynq
from pynq.buffer import PynqBuffer
from pynqmetadata.frontends import Metadata

from chai import devices
from chai.codegen.encoding import decode
from chai.devices.base import Work
from chai.errors import DeviceError
from chai.overlay import Overlay
from chai.overlay.layout import Placed, blob_bytes, fetch, planes, store
from chai.overlay.records import unpack
from chai.tasks import Task
from chai.tasks.conv import Affine, Conv

from .clock import Clock
from .hardware_files import base, controller

PAGE = 4096
DIRTY, STALE = 0xCC, 0xDD  # what a new buffer holds, on either side


class BusError(Exception):
    """An address that nothing answers at."""


@dataclass
class Buffer:
    """Contiguous memory of the accelerator, and the host's own view of it."""

    address: int
    size: int
    device: np.ndarray
    host: np.ndarray


class Ddr:
    """A finite pool. ``fail_at`` makes the n-th allocation from now fail; ``held`` is what is not given back yet."""

    def __init__(self, begin: int, size: int) -> None:
        self.begin, self.size = begin, size
        self.held: dict[int, Buffer] = {}
        self.fail_at = 0

    def allocate(self, size: int) -> Buffer:
        self.fail_at -= 1
        room = -(-size // PAGE) * PAGE
        address = self.begin
        for buffer in sorted(self.held.values(), key=lambda b: b.address):
            if buffer.address - address >= room + PAGE:
                break
            address = buffer.address + -(-buffer.size // PAGE) * PAGE + PAGE  # a page between any two
        if self.fail_at == 0 or address + room > self.begin + self.size:
            raise RuntimeError("BO allocation failed: Cannot allocate memory")
        made = Buffer(address, size, np.full(size, STALE, np.uint8), np.full(size, DIRTY, np.uint8))
        self.held[address] = made
        return made

    def release(self, address: int) -> None:
        del self.held[address]

    def at(self, address: int, size: int) -> np.ndarray:
        """What the accelerator has at an address. BusError outside of what is allocated, by a byte even."""
        buffer = self.around(address)
        offset = address - buffer.address
        if offset + size > buffer.size:
            raise BusError(f"{size} bytes at {address:#x}: the buffer ends {offset + size - buffer.size} before")
        return buffer.device[offset : offset + size]

    def around(self, address: int) -> Buffer:
        for buffer in self.held.values():
            if buffer.address <= address < buffer.address + buffer.size:
                return buffer
        raise BusError(f"{address:#x}: no buffer is there")


class Accelerator:
    """The register map and the chain, which ``takes`` so many seconds of ``clock``."""

    def __init__(self, overlay: Overlay, memory: Ddr, exact: bool, clock: Clock) -> None:
        self.overlay, self.memory, self.exact, self.clock = overlay, memory, exact, clock
        self.offsets = {r.offset: r.name for r in overlay.registers.list}
        self.constants = {"ID": overlay.registers["ID"].value or 0, "BUILD": overlay.build}  # of the bitstream
        self.takes = 50e-6
        self.power_on()
        self.deaf = False  # to a reset, until the next download
        self.mute = False  # raises no interrupt
        self.hangs_at: int | None = None  # a Task that never ends
        self.stop_at: tuple[int, int] | None = None  # (cause, Task) of an error
        self.corrupt: Callable[[Task, np.ndarray], None] | None = None
        self.on_look: Callable[[], None] = lambda: None

    def power_on(self) -> None:
        """As after a download."""
        self.values = dict.fromkeys((r.name for r in self.overlay.registers.list), 0)
        self.values |= self.constants
        self.ends: float = 0
        self.deaf = False

    def read(self, offset: int) -> int:
        name = self.offsets[offset]
        if name == "STATUS":
            self.on_look()
            self.tick()
        return self.values[name]

    def tick(self) -> None:
        """Be done if it is time."""
        if self._bit("busy") and self.clock.now >= self.ends:
            self._finish()
            if not self._bit("busy") and not self.mute:
                status, irq = self.overlay.registers["STATUS"], self.overlay.registers["IRQ"]
                for name in ("done", "error"):
                    self.values["IRQ"] |= irq.mask(name) if self.values["STATUS"] & status.mask(name) else 0

    @property
    def line(self) -> bool:
        """The interrupt, a level."""
        return bool(self.values["IRQ"] & self.values["IRQ_ENABLE"])

    def write(self, offset: int, value: int) -> None:
        name = self.offsets[offset]
        register = self.overlay.registers[name]
        if register.access == "r":
            raise BusError(f"{name} cannot be written")
        if name == "IRQ":
            self.values[name] &= ~value
        elif name != "CONTROL":
            self.values[name] = value
        elif value & register.mask("reset"):
            if self.deaf:
                return
            self.values |= {"STATUS": 0, "DONE": 0, "ERROR": 0, "CHAIN_LO": 0, "CHAIN_HI": 0, "COUNT": 0}
        elif value & register.mask("start"):
            assert not self._bit("busy"), "started while busy"
            self.values |= {"STATUS": self.overlay.registers["STATUS"].mask("busy"), "DONE": 0, "ERROR": 0}
            self.ends = self.clock.now + self.takes

    def _bit(self, name: str) -> bool:
        return bool(self.values["STATUS"] & self.overlay.registers["STATUS"].mask(name))

    def _stop(self, words: str, tag: int) -> None:
        status, error = self.overlay.registers["STATUS"], self.overlay.registers["ERROR"]
        cause = self.overlay.registers.errors.index(words)
        self.values["STATUS"] = status.mask("error")
        self.values["ERROR"] = cause * (error.mask("cause") & -error.mask("cause")) | tag * (
            error.mask("tag") & -error.mask("tag")
        )

    def _finish(self) -> None:
        """Run the chain on both engines, either as far ahead of the other as its tokens let it."""
        address, count = self.values["CHAIN_LO"] | self.values["CHAIN_HI"] << 32, self.values["COUNT"]
        size = self.overlay.descriptor.bytes
        tag = 0
        try:
            chain = [bytes(self.memory.at(address + i * size, size)) for i in range(count)]
            values = []
            for tag, descriptor in enumerate(chain):  # noqa: B007
                values.append(unpack(self.overlay.descriptor, descriptor))
            array = {kind.limits(self.overlay).opcode for kind in (Conv, Affine)}  # type: ignore[union-attr]
            queues = [[i for i in range(count) if (values[i]["opcode"] in array) is side] for side in (False, True)]
            tokens = [0, 0]
            while queues[0] or queues[1]:
                side = next((s for s in (0, 1) if queues[s] and (tokens[s] or not values[queues[s][0]]["wait"])), None)
                if side is None or queues[side][0] == self.hangs_at:
                    self.ends = np.inf  # busy for ever
                    return
                tag = queues[side].pop(0)
                if self.stop_at and self.stop_at[1] == tag:
                    self._stop(self.overlay.registers.errors[self.stop_at[0]], tag)
                    return
                tokens[side] -= values[tag]["wait"]
                self._run(chain[tag], values[tag])
                tokens[1 - side] += values[tag]["signal"]
                self.values["DONE"] += 1
        except BusError:
            self._stop("bus error while reading", tag)
            return
        except DeviceError as error:
            version = "expected version" in error.message
            self._stop("descriptor of another version" if version else "a value beyond the limits of its kind", tag)
            return
        self.values["STATUS"] = self.overlay.registers["STATUS"].mask("done")

    def _run(self, descriptor: bytes, values: dict[str, int]) -> None:
        address, shapes = _blobs(values, self.overlay)
        where = values["weights"] or values["table"]
        constants = self.memory.around(where) if where else None
        task = decode(
            descriptor,
            memoryview(constants.device) if constants else b"",
            self.overlay,
            address,
            shapes,
            constants.address if constants else 0,
        )
        given = {blob: self._codes(blob, address, shapes) for blob in task.inputs}
        out = np.zeros(shapes[task.output], np.int8)
        if self.exact:
            out[...] = task.define(*(given[b] for b in task.inputs))
        else:
            blobs = {**given, task.output: out}
            devices.open("emulator").compile(Work(self.overlay, [task], shapes)).run(blobs)
        if self.corrupt:
            self.corrupt(task, out)
        store(out, *self._memory(task.output, address, shapes))
        self.values["CYCLES"] += task.cycles(self.overlay, shapes)

    def _codes(self, blob: str, address: dict[str, Placed], shapes: dict[str, Any]) -> np.ndarray:
        codes = np.zeros(shapes[blob], np.int8)
        memory, layout, first, channels = self._memory(blob, address, shapes)
        fetch(memory, codes, layout, first, channels)
        return codes

    def _memory(self, blob: str, address: dict[str, Placed], shapes: dict[str, Any]) -> tuple[Any, Any, int, int]:
        placed = address[blob]
        whole = shapes[placed.parent or blob]
        size = blob_bytes(whole, self.overlay.layout)
        return self.memory.at(placed.offset, size), self.overlay.layout, placed.first_channel, whole[1]


def _blobs(values: dict[str, int], overlay: Overlay) -> tuple[dict[str, Placed], dict[str, Any]]:
    """The blobs that a descriptor speaks of, and the larger ones that they are parts of."""
    layout = overlay.layout
    address: dict[str, Placed] = {}
    shapes: dict[str, Any] = {}
    seen = set()
    for name, sizes in (("input", "input"), ("second", "input"), ("output", "output")):
        if not values[name]:
            continue
        shape = values["batch"], *(values[f"{sizes}_{axis}"] for axis in ("channels", "height", "width"))
        plane, whole = values[f"{name}_plane"], values[f"{name}_planes"]
        if (values[name], plane, whole, shape) in seen:
            continue  # an eltwise of a blob and itself
        seen.add((values[name], plane, whole, shape))
        shapes[name] = shape
        parent = None if (plane, whole) == (0, planes(shape[1], layout)) else f"around {name}"
        address[name] = Placed(values[name], blob_bytes(shape, layout), parent, plane * layout.channels_per_word)
        if parent:
            shapes[parent] = shape[0], whole * layout.channels_per_word, *shape[2:]
            address[parent] = Placed(values[name], blob_bytes(shapes[parent], layout))
    return address, shapes


class Controller:
    """An AXI interrupt controller with one input (PG099), and /dev/uioN behind it: a terminal that speaks its language.

    The host writes 4 bytes to let the next interrupt through and reads 4 bytes when one came. An input that is a level
    stands again as soon as it is acknowledged; one that is an ``edge`` does not.
    """

    def __init__(self, line: Callable[[], bool], edge: bool) -> None:
        self.line, self.edge = line, edge
        self.values = {0x08: 0, 0x1C: 0}  # IER, MER
        self.pending = self.before = self.open = False
        self.count = 0
        self.host, end = os.openpty()
        tty.setraw(end)
        self.path = os.ttyname(end)
        self.end = end  # kept open: a terminal that nobody has open is gone
        os.set_blocking(self.host, False)

    def read(self, offset: int) -> int:
        self.look()
        return {0x00: self.pending, 0x04: self.pending & self.values[0x08]}.get(offset, self.values.get(offset, 0))

    def write(self, offset: int, value: int) -> None:
        if offset == 0x0C:  # IAR
            self.pending = self.pending and not value & 1
        elif offset in (0x10, 0x14):  # SIE, CIE
            self.values[0x08] = self.values[0x08] | value if offset == 0x10 else self.values[0x08] & ~value
        else:
            self.values[offset] = value
        self.look()

    def look(self) -> None:
        """Let an interrupt through that can get through."""
        now = self.line()
        self.pending = self.pending or (now and not (self.edge and self.before))
        self.before = now
        with suppress(BlockingIOError):
            self.open = bool(os.read(self.host, 4096)) or self.open
        if self.open and self.pending and self.values[0x08] & 1 and self.values[0x1C] & 1:
            self.open = False
            self.count += 1
            os.write(self.host, struct.pack("<I", self.count))

    @property
    def coming(self) -> bool:
        """Whether an interrupt is on its way to the host."""
        unread = struct.unpack("i", fcntl.ioctl(self.end, termios.FIONREAD, bytes(4)))[0]
        return self.pending or unread > 0

    def close(self) -> None:
        os.close(self.end)
        os.close(self.host)


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

    ``on_use`` is called before whatever the caller's thread does: registers, buffers, downloads.
    """

    def __init__(
        self, overlay: Overlay, clock: Clock, memory: int = 64 << 20, exact: bool = True, interrupt: str = ""
    ) -> None:
        super().__init__(f"board{id(self)}")
        self.name = "simulated"
        self.arch = "armv7l" if overlay.family == "zynq7000" else "aarch64"
        self.capabilities = {"REGISTER_RW": True}
        self.overlay = overlay
        # buffers above 4 GB need both words of an address
        self.memory = Ddr(0x1000_0000 if self.arch == "armv7l" else 0x8_0000_0000, memory)
        self.accelerator = Accelerator(overlay, self.memory, exact, clock)
        self.controller = Controller(lambda: self.accelerator.line, interrupt == "edge") if interrupt else None
        self.busy = threading.RLock()  # the thread that serves interrupts comes here too
        self.on_use: Callable[[], None] = lambda: None
        self.counts = Counts()
        self.downloads = 0
        self.lose: tuple[str, int] | None = None
        self.halves = False  # a flush reaches the first half of its buffer only
        self.processor: dict[int, int] = _clocks(self.arch)

    # -- registers

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
            found = self._read_one(address)
            self._wires()
            return found

    def _read_one(self, address: int) -> int:
        self._use()
        offset = address - controller(self.overlay)
        if self.controller and 0 <= offset < 0x1000:
            return self.controller.read(offset)
        offset = address - base(self.overlay)
        if 0 <= offset < self.overlay.registers.window:
            self.counts.reads[self.accelerator.offsets[offset]] += 1
            return self.accelerator.read(offset) & 0xFFFFFFFF
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
        offset = address - base(self.overlay)
        if 0 <= offset < self.overlay.registers.window:
            self.counts.writes[self.accelerator.offsets[offset]] += 1
            self.accelerator.write(offset, value)
        elif address >> 24 in (0xF8, 0xFF, 0xFD):
            self.processor[address] = value
        else:
            raise BusError(f"the host writes {address:#x}")

    # -- memory

    def allocate(self, shape: Any, dtype: Any = "u4", **_: Any) -> PynqBuffer:
        self._use()
        made = self.memory.allocate(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        self.counts.allocations += 1
        view = np.frombuffer(memoryview(made.host), np.uint8)
        weakref.finalize(view, self.memory.release, made.address)  # views of views keep it
        return PynqBuffer(shape, dtype, buffer=view, device=self, device_address=made.address, bo=made, coherent=False)

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
            reached = bo.size // 2 if self.halves else bo.size
            bo.device[:reached] = bo.host[:reached]

    def invalidate(self, bo: Buffer, *_: Any) -> None:
        self._use()
        self.counts.invalidated += bo.size
        if not self._lost("invalidate"):
            bo.host[...] = bo.device

    # -- bitstreams

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Any:
        handoff = Path(bitfile_name).with_suffix(".hwh")
        if not handoff.exists():
            raise RuntimeError(f"Unable to find metadata for bitstream {bitfile_name}")
        try:
            from pynq.metadata.runtime_metadata_parser import RuntimeMetadataParser
        except ImportError:  # pynq 4
            from pynqmetadata.views.runtime import RuntimeMetadataParser

        found = RuntimeMetadataParser(Metadata(input=str(handoff)))
        found.mem_dict["PSDDR"] = {
            "raw_type": 2, "used": 1, "base_address": 0, "size": self.memory.size, "type": "DDR4", "streaming": False,
            "idx": 0, "tag": "PSDDR", "fullpath": "PSDDR",
        }  # fmt: skip
        found.xclbin_data = found.bin_data = found.dtbo_data = None
        return found

    def download(self, bitstream: Any, parser: Any = None) -> None:
        from pynq.pl_server.embedded_device import parse_bit_header

        self._use()
        parse_bit_header(Path(bitstream.bitfile_name).read_bytes())
        self.downloads += 1
        self.accelerator.power_on()
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
    found = dict.fromkeys((0xFF5E0020, 0xFF5E0030, 0xFD1A0020, 0xFD1A002C, 0xFD1A0038), pll)
    return found | dict.fromkeys((0xFF5E00C0, 0xFF5E00C4, 0xFF5E00C8, 0xFF5E00CC), divided) | {0xFD1A0060: 1 << 8}
