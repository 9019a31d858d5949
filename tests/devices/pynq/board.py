"""A board without a board: a pynq Device whose memory, registers and accelerator are simulated.

The host has a write-back cache, which does what a real one does on its worst day (``Buffer``). The accelerator knows nothing of
chai's plans: it fetches descriptors from its memory, decodes them, and does what the Tasks' definitions say.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pynq
from pynq.buffer import PynqBuffer
from pynqmetadata.frontends import Metadata

from chai import devices
from chai.codegen.encoding import decode
from chai.errors import DeviceError
from chai.overlay import Overlay
from chai.overlay.layout import Placed, blob_bytes, image_bytes
from chai.overlay.records import unpack
from chai.tasks import Task, find
from chai.tasks.fields import Operands, TaskConstants
from chai.tasks.work import Work
from tests.reference import engines

from .clock import Clock
from .hardware_files import base, controller

PAGE = 4096
LINE = 32  # bytes of the cache's lines
DIRTY, STALE = 0xCC, 0xDD  # what a new buffer holds, in the cache and in DDR


class BusError(Exception):
    """An address that nothing answers at."""


class Buffer:
    """Contiguous memory, and the host's write-back cache of it: bytes in DDR, and as the ``host`` sees them.

    Every line is in the cache, and is fetched again only after it was invalidated; a new buffer's are dirty. Dirty lines are
    written back when they are flushed, or when the cache needs the room (``evict``). A line that is invalidated is dropped, dirty
    or not. The accelerator sees DDR, or through a ``coherent`` port what the host sees: its writes then make lines dirty.
    """

    def __init__(self, address: int, size: int, coherent: bool) -> None:
        self.address, self.size = address, size
        self.host, self._ddr = np.full(size, DIRTY, np.uint8), np.full(size, STALE, np.uint8)
        self._clean = self._ddr.copy()  # what lines held when they were fetched or written back
        self.device = self.host if coherent else self._ddr

    def evict(self, end: int | None = None) -> None:
        """Write dirty lines back, those before ``end``."""
        dirty = np.logical_or.reduceat(self.host != self._clean, np.arange(0, self.size, LINE))
        bytes = np.flatnonzero(np.repeat(dirty, LINE)[: self.size][:end])
        self._ddr[bytes] = self._clean[bytes] = self.host[bytes]

    def invalidate(self) -> None:
        """Drop all lines, as a 32-bit Arm's outer cache does, and fetch them again."""
        self.host[...] = self._clean[...] = self._ddr


class Ddr:
    """A finite pool. ``fail_at`` makes the n-th allocation from now fail; ``held`` is what is not given back yet."""

    def __init__(self, begin: int, size: int, coherent: bool) -> None:
        self.begin, self.size, self.coherent = begin, size, coherent
        self.held: dict[int, Buffer] = {}
        self._lock = threading.RLock()  # as the kernel's; garbage may be collected, and a buffer released, in allocate
        self.fail_at = 0
        self.on_release: Callable[[], None] = lambda: None

    def allocate(self, size: int) -> Buffer:
        with self._lock:
            self.fail_at -= 1
            room = -(-size // PAGE) * PAGE
            address = self.begin
            for buffer in sorted(self.held.values(), key=lambda b: b.address):
                if buffer.address - address >= room + PAGE:
                    break
                address = buffer.address + -(-buffer.size // PAGE) * PAGE + PAGE  # a page between any two
            if self.fail_at == 0 or address + room > self.begin + self.size:
                raise RuntimeError("BO allocation failed: Cannot allocate memory")
            buffer = self.held[address] = Buffer(address, size, self.coherent)
            return buffer

    def release(self, address: int) -> None:
        self.on_release()
        with self._lock:
            del self.held[address]

    def written(self, address: int) -> None:
        """Let the cache write back, after the accelerator wrote at an address, what is dirty of that buffer: over the results."""
        if not self.coherent:
            self.around(address).evict()

    def at(self, address: int, size: int) -> np.ndarray:
        """What the accelerator has at an address. BusError outside of what is allocated, by a byte even."""
        buffer = self.around(address)
        offset = address - buffer.address
        if offset + size > buffer.size:
            raise BusError(f"{size} bytes at {address:#x}: the buffer ends {offset + size - buffer.size} before")
        return buffer.device[offset : offset + size]

    def around(self, address: int) -> Buffer:
        for buffer in list(self.held.values()):  # another thread may allocate
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
        self.random = Random(0)
        self.choose: engines.Choice = self.random.choice  # any order that the counts allow
        self.depth = 4  # descriptors in each engine's queue
        self.at = 0  # the Task that did something last
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

    @property
    def due(self) -> float:
        """When something happens next without the host."""
        return self.ends if self._bit("busy") else np.inf

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
        """Run the chain on both engines, as far ahead of each other as the counts let them."""
        address, count = self.values["CHAIN_LO"] | self.values["CHAIN_HI"] << 32, self.values["COUNT"]
        size = self.overlay.descriptor.bytes
        self.at = 0
        try:
            chain = [bytes(self.memory.at(address + i * size, size)) for i in range(count)]
            values = []
            for self.at, descriptor in enumerate(chain):
                values.append(unpack(self.overlay.descriptor, descriptor))
            kinds = [engines.engine(v, self.overlay) for v in values]
            work = lambda i: self._run(i, values[i])  # noqa: E731
            done = self.overlay.registers["DONE"]
            for i in engines.run(kinds, [engines.after(v) for v in values], work, self._choose, self.depth):
                self.values["DONE"] += done.mask(kinds[i]) & -done.mask(kinds[i])
        except engines.Stuck:
            self.ends = np.inf  # busy for ever
            return
        except Stopped as stop:
            self._stop(self.overlay.registers.errors[stop.cause], self.at)
            return
        except BusError:
            self._stop("bus error while reading", self.at)
            return
        except DeviceError as error:
            version = "expected version" in error.message
            self._stop("descriptor of another version" if version else "a value beyond the limits of its kind", self.at)
            return
        self.values["STATUS"] = self.overlay.registers["STATUS"].mask("done")

    def _choose(self, moves: Sequence[engines.Move]) -> engines.Move:
        moves = [move for move in moves if move != ("step", self.hangs_at)]
        if not moves:
            raise engines.Stuck
        return self.choose(moves)

    def _run(self, i: int, values: dict[str, int]) -> Iterator[None]:
        """Read and write blobs row by row, at any time between start and end; what is written depends on what was read.

        ``early`` and ``late`` are the extremes: reads at the start and at once, or just before the writes at the end.
        """
        self.at = i
        if self.stop_at and self.stop_at[1] == i:
            raise Stopped(self.stop_at[0])
        address, shapes = blobs_of(values, self.overlay)
        where = values["weights"] or values["table"]
        constants = self.memory.around(where) if where else None
        read = TaskConstants(memoryview(constants.device), constants.address) if constants else None
        memory = Operands(self.overlay, address, shapes, read)
        inputs = tuple(name for name in ("input", "second") if name in address)
        (task,) = decode([(values, {"inputs": inputs, "output": "output", "origin": ()})], memory)
        late = self.random.random() < 0.5
        if late:
            yield
        given = {}
        for blob in task.inputs:
            given[blob] = np.zeros(shapes[blob], np.int8)
            for rows in self._rows(values, "second" if blob == "second" else "input"):
                rows.read(given[blob])
                if late:
                    self.at = i
                    yield
        out = np.zeros(shapes[task.output], np.int8)
        if self.exact:
            out[...] = task.define(*(given[b] for b in task.inputs))
        else:
            blobs = {**given, task.output: out}
            devices.open("emulator").compile(Work(self.overlay, [task], shapes)).run(blobs)
        if self.corrupt:
            self.corrupt(task, out)
        for rows in self._rows(values, "output"):
            yield
            self.at = i
            rows.write(out)
        self.memory.written(values["output"])
        self.values["CYCLES"] += task.cycles(self.overlay, shapes)

    def _rows(self, values: dict[str, int], name: str) -> Iterator[Rows]:
        """Some rows at a time, of all images and planes."""
        word = self.overlay.layout.channels_per_word
        (n, c, h, w), pitch = sizes_of(values, name, word)
        planes, image = -(-c // word), values[f"{name}_image"]
        step = -(-h // STEPS)
        for top in range(0, h, step):
            rows = slice(top, min(top + step, h))
            found = Rows(rows, word, {})
            for i, plane in np.ndindex(n, planes):
                begin = values[name] + i * image + plane * pitch + rows.start * w * word
                found.memory[i, plane] = self.memory.at(begin, (rows.stop - rows.start) * w * word).view(np.int8)
            yield found


STEPS = 5  # in which a Task reads a blob or writes it


class Stopped(Exception):
    """An error of the accelerator, as a test asked for."""

    def __init__(self, cause: int) -> None:
        self.cause = cause


@dataclass
class Rows:
    """Rows of a blob in memory, for each image and plane: words of channels, pixel by pixel."""

    rows: slice
    word: int
    memory: dict[tuple[int, int], np.ndarray]

    def read(self, codes: np.ndarray) -> None:
        for (i, plane), words in self.memory.items():
            out = codes[i, plane * self.word : (plane + 1) * self.word, self.rows]
            out[...] = words.reshape(*out.shape[1:], self.word).transpose(2, 0, 1)[: len(out)]

    def write(self, codes: np.ndarray) -> None:
        for (i, plane), words in self.memory.items():
            given = codes[i, plane * self.word : (plane + 1) * self.word, self.rows]
            into = words.reshape(*given.shape[1:], self.word)
            into[...] = 0
            into[..., : len(given)] = given.transpose(1, 2, 0)


def blobs_of(values: dict[str, int], overlay: Overlay) -> tuple[dict[str, Placed], dict[str, Any]]:
    """The blobs that a descriptor speaks of, and larger ones that their images are apart like parts of.

    A second address may be one of the first blob: of kinds that read one.
    """
    layout = overlay.layout
    kind = next(s.kind for s in overlay.tasks if dict(s.limits)["opcode"] == values["opcode"])
    names = (*("input", "second")[: find(kind, overlay.arithmetic).operands], "output")
    address: dict[str, Placed] = {}
    shapes: dict[str, Any] = {}
    for name in names:
        if not values[name]:
            continue
        shape, pitch = sizes_of(values, name, layout.channels_per_word)
        image = values[f"{name}_image"]
        shapes[name] = shape
        parent = None if image == image_bytes(shape, layout) else f"around {name}"
        address[name] = Placed(values[name], blob_bytes(shape, layout), parent)
        if parent:
            planes = image // max(1, pitch)
            shapes[parent] = shape[0], planes * layout.channels_per_word, *shape[2:]
            address[parent] = Placed(values[name], blob_bytes(shapes[parent], layout))
    return address, shapes


def sizes_of(values: dict[str, int], name: str, word: int) -> tuple[tuple[int, int, int, int], int]:
    """The shape of a blob of a descriptor, and the bytes from plane to plane; a vector has one word for each plane."""
    side = "output" if name == "output" else "input"
    n, c, h, w, pitch = (
        values[key] for key in ("batch", *(f"{side}_{fact}" for fact in ("channels", "height", "width", "pitch")))
    )
    if name == "second" and values.get("vector"):
        return (n, c, 1, 1), word
    return (n, c, h, w), pitch


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
            found = self._read_one(address)
            self._wires()
            return found

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

        found = RuntimeMetadataParser(Metadata(input=str(handoff)))
        found.mem_dict["PSDDR"] = {
            "raw_type": 2, "used": 1, "base_address": 0, "size": self.memory.size, "type": "DDR4", "streaming": False,
            "idx": 0, "tag": "PSDDR", "fullpath": "PSDDR",
        }  # fmt: skip
        found.xclbin_data = found.bin_data = found.dtbo_data = None
        return found

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
    found = dict.fromkeys((0xFF5E0020, 0xFF5E0030, 0xFD1A0020, 0xFD1A002C, 0xFD1A0038), pll)
    return found | dict.fromkeys((0xFF5E00C0, 0xFF5E00C4, 0xFF5E00C8, 0xFF5E00CC), divided) | {0xFD1A0060: 1 << 8}
