"""pynq: an overlay on a Zynq board, through the pynq library.

The one file that imports pynq, and only when a network is loaded for the board. For each segment the host writes the
blobs it is given into DDR, four registers, and reads the blobs it wants: everything else is in the chain of descriptors
that the accelerator fetches.
"""

from __future__ import annotations

import fcntl
import gc
import logging
import os
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any

from ..chain import FIXED, Chain, chain, codes_of
from ..cycles import cycles
from ..errors import DeviceError
from ..lazy import np
from .base import Device, Program

if TYPE_CHECKING:
    from ..graph import Array, Shape
    from ..overlay import Overlay
    from ..tasks import Task

log = logging.getLogger("chai.pynq")

PATIENCE = 20, 1.0  # a chain may take so many times what the cycle model says, and so many seconds
POLL = 20e-6, 2e-3  # seconds between two looks at STATUS: the first, and the longest; a look costs about 30 us itself
MEMORY = Path("/proc/meminfo")
LOCKS = Path("/run/lock")


class Memory:
    """One pynq buffer per region of a Chain. Raises DeviceError, with sizes and a remedy, when there is no room."""

    def __init__(self, sizes: Mapping[int, int], device: Any) -> None:
        needed = sum(sizes.values())
        total, free = _contiguous()
        # what is not free may hold pages that the kernel can move: only the pool's size is a reason not to try
        if 0 < total < needed:
            raise _no_room(needed, total, free)
        self.buffers: dict[int, Any] = {}
        try:
            for region, size in sizes.items():
                self.buffers[region] = device.allocate((size,), "u1", cacheable=True)
        except (RuntimeError, MemoryError) as error:  # which of them depends on pynq's version
            self.buffers.clear()
            raise _no_room(needed, total, free, error) from None
        self.addresses = {region: int(buffer.device_address) for region, buffer in self.buffers.items()}

    @property
    def bytes(self) -> dict[int, Array]:
        """The host's view of each region. Whoever holds one holds the buffer."""
        return {region: np.asarray(buffer) for region, buffer in self.buffers.items()}

    def free(self) -> None:
        """Give the buffers back, whoever still holds this: an error's traceback does."""
        self.buffers.clear()

    def flush(self, regions: Collection[int]) -> None:
        """Let the accelerator see what the host has written."""
        for region in regions:
            self.buffers[region].flush()

    def invalidate(self, regions: Collection[int]) -> None:
        """Let the host see what the accelerator has written."""
        for region in regions:
            self.buffers[region].invalidate()


def _contiguous() -> tuple[int, int]:
    """Bytes of the kernel's pool of contiguous memory, and those free; 0 where it does not say."""
    found = {}
    try:
        for line in MEMORY.read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("CmaTotal", "CmaFree"):
                found[name] = int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return found.get("CmaTotal", 0), found.get("CmaFree", 0)


def _no_room(needed: int, total: int, free: int, error: Exception | None = None) -> DeviceError:
    pool = (
        f"the pool of contiguous memory has {total / 1e6:.1f} MB, {free / 1e6:.1f} MB free" if total else "none is left"
    )
    return DeviceError(
        f"{needed / 1e6:.1f} MB of contiguous memory are needed, {pool}" + (f" ({error})" if error else ""),
        hint="a smaller batch; close other networks and notebooks (net.close()); or boot with a larger pool: cma=256M",
    )


class Board:
    """A downloaded bitstream and its accelerator's registers. One chain runs at a time, whoever brings it."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay
        self.lock = threading.Lock()
        self._claim = _claim()
        try:
            self.device, self.registers = _download(overlay)
            self.check()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let other processes have it."""
        os.close(self._claim)

    def read(self, name: str) -> int:
        """A register's value."""
        return int(self.registers.read(self.overlay.registers[name].offset))

    def write(self, name: str, value: int) -> None:
        """Write a register."""
        self.registers.write(self.overlay.registers[name].offset, value)

    def bits(self, name: str, part: str, value: int) -> int:
        """Part of a register's value."""
        mask = self.overlay.registers[name].mask(part)
        return (value & mask) // (mask & -mask)

    def check(self) -> None:
        """Raise DeviceError unless the accelerator of this overlay and build answers."""
        wanted = self.overlay.registers["ID"].value
        found = self.read("ID")
        if found != wanted:
            raise DeviceError(
                f"no accelerator of chai answers: register ID reads {found:#010x}, expected {wanted:#010x}",
                hint="another bitstream may have been loaded; load the network again",
            )
        build = self.read("BUILD")
        if build != self.overlay.build:
            raise DeviceError(
                f"the bitstream is of build {build:08x}, overlay {self.overlay.name} is build {self.overlay.build:08x}",
                hint="take the bitstream that was built from this overlay.json, or compile the network for the other",
            )

    def run(self, address: int, tasks: Sequence[Task], seconds: float) -> None:
        """Run the chain at ``address``. Raises DeviceError that names the layer; the accelerator is then reset."""
        try:
            self.write("CHAIN_LO", address & 0xFFFFFFFF)
            self.write("CHAIN_HI", address >> 32)
            self.write("COUNT", len(tasks))
            self.write("CONTROL", self.overlay.registers["CONTROL"].mask("start"))
            self._wait(tasks, seconds)
        except BaseException:  # Ctrl-C too: it must not write into memory that is given back
            self.reset()
            raise

    def reset(self) -> None:
        """Stop whatever it does."""
        self.write("CONTROL", self.overlay.registers["CONTROL"].mask("reset"))

    def _wait(self, tasks: Sequence[Task], seconds: float) -> None:
        deadline, pause = monotonic() + seconds, POLL[0]
        while True:
            late = monotonic() > deadline  # before the look: the one behind the deadline counts
            status = self.read("STATUS")
            if self.bits("STATUS", "error", status):
                raise self._failed(tasks)
            if self.bits("STATUS", "done", status):
                return
            if late or not self.bits("STATUS", "busy", status):
                raise self._late(tasks, seconds if late else None)
            sleep(pause)
            pause = min(2 * pause, POLL[1])

    def _failed(self, tasks: Sequence[Task]) -> DeviceError:
        value = self.read("ERROR")
        cause, tag = self.bits("ERROR", "cause", value), self.bits("ERROR", "tag", value)
        known = self.overlay.registers.errors
        words = known[cause] if cause < len(known) else f"cause {cause}"
        return _named(tasks, tag, f"the accelerator stopped: {words}", "CHAI_CHECK=1 runs each layer on its own")

    def _late(self, tasks: Sequence[Task], seconds: float | None) -> DeviceError:
        done = self.read("DONE")
        what = f"not done after {seconds:.1f} s" if seconds is not None else "the accelerator stopped without a word"
        return _named(
            tasks, done, f"{what}, {done} of {len(tasks)} Tasks completed", "it was reset; if it stays so, power cycle"
        )


def _named(tasks: Sequence[Task], index: int, message: str, hint: str) -> DeviceError:
    if index >= len(tasks):
        return DeviceError(message, hint=hint)
    task = tasks[index]
    return DeviceError(f"layer {task.origin[0]!r} ({task.kind}): {message}", layer=task.origin[0], hint=hint)


# -- finding it


def _claim() -> int:
    """The lock of the one FPGA there is, whatever overlay is on it. Raises DeviceError that names the process that has it."""
    folder = LOCKS if os.access(LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    # everybody may write there, so a link of that name is nobody's good will
    file = os.open(folder / "chai-board.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise DeviceError(
            f"the board is in use by process {owner or 'unknown'}", hint="one process at a time"
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, str(os.getpid()).encode(), 0)
    return file


def _bitstream(overlay: Overlay) -> Path | None:
    """Where the bitstream has to be, if it or a link to it is there."""
    path = overlay.path.resolve().parent / f"{overlay.name}.bit"
    beside = (path, path.with_name(path.name + ".d"), path.with_name(path.name + ".link"))
    return path if any(p.exists() for p in beside) else None


def _obstacle() -> str | None:
    """Why there can be no board here, as far as can be seen without pynq."""
    if find_spec("pynq") is None:
        return "the pynq library is not installed"
    if "XILINX_XRT" not in os.environ:
        return "XILINX_XRT is not set"
    if os.geteuid():
        return "registers can be mapped by root alone"
    return None


def _active() -> Any:
    """The device that pynq works on. Raises DeviceError with what may be missing."""
    obstacle = _obstacle()
    if find_spec("pynq") is None:
        raise DeviceError("the pynq library is not installed", hint="it is part of a PYNQ board's image")
    import pynq

    try:
        return pynq.Device.active_device
    except (RuntimeError, NameError, AttributeError) as error:  # what pynq says depends on its version
        board = "" if os.environ.get("BOARD") else "; BOARD is not set either"
        raise DeviceError(
            f"pynq finds no board here ({obstacle or error})",
            hint=f"sudo drops what pynq needs: sudo -E, or a login shell (sudo -i){board}",
        ) from error


def _download(overlay: Overlay) -> tuple[Any, Any]:
    """pynq's device and the driver of the accelerator, the bitstream being loaded."""
    path = _bitstream(overlay)
    if path is None:
        raise DeviceError(
            f"no bitstream of overlay {overlay.name} is published yet",
            hint=f"build one with an accelerator {overlay.vlnv} and put {overlay.name}.bit and {overlay.name}.hwh beside "
            f"{overlay.path}; --device emulator computes the same bits",
        )
    device = _active()
    import pynq

    if overlay.family == "zynq7000" and int(pynq.__version__.split(".")[0]) > 3:
        raise DeviceError(
            f"pynq {pynq.__version__} no longer knows the Zynq-7000 of overlay {overlay.name}",
            hint="pynq 3.1.2 is the last that does (boards' images have 3.0 or 3.1)",
        )
    if not path.exists() and not path.with_name(path.name + ".d").exists():
        import pynqutils

        pynqutils.setup_utils.download_overlays(str(path.parent))  # which compares the link's checksum
    driver = _driver(overlay.vlnv)
    try:
        loaded = pynq.Overlay(str(path), device=device)
    except Exception as error:
        missing = "" if path.with_suffix(".hwh").exists() else f"; {path.stem}.hwh has to be beside it"
        raise DeviceError(
            f"{path.name} cannot be loaded: {error}{missing}", hint="both files come from one build"
        ) from error
    names = [name for name, about in loaded.ip_dict.items() if about["type"] == overlay.vlnv]
    if not names:
        kinds = ", ".join(sorted(about["type"] for about in loaded.ip_dict.values())) or "nothing"
        raise DeviceError(
            f"{path.name} has no {overlay.vlnv}, only {kinds}", hint="it is the bitstream of something else"
        )
    found = getattr(loaded, names[0])
    if not isinstance(found, driver):
        raise DeviceError(f"{path.name}: {names[0]} was given the driver {type(found).__name__}, not chai's")
    return device, found


@lru_cache(maxsize=8)
def _driver(vlnv: str) -> Any:
    """The class that pynq binds to the accelerator; making it registers it."""
    import pynq

    return type("Accelerator", (pynq.DefaultIP,), {"bindto": [vlnv], "__doc__": "An accelerator of chai."})


# -- networks on it


class PynqProgram(Program):
    """A Chain, and the memory it lies in from the first run to ``close`` or a failure."""

    def __init__(self, device: Pynq, made: Chain, places: Mapping[str, tuple[str, int]]) -> None:
        self.device = device
        self.chain = made
        self.places = places
        expected = sum(cycles(task, made.overlay, made.shapes) for task in made.tasks) / (made.overlay.clock_mhz * 1e6)
        self.seconds = PATIENCE[0] * expected + PATIENCE[1]
        self._memory: Memory | None = None
        self._busy = threading.RLock()

    def run(self, blobs: dict[str, Array]) -> list[float] | None:
        begin = perf_counter()
        board = self.device.board(self.chain.overlay)
        with self._busy, board.lock:
            try:
                if self._memory is None:
                    self._memory = self._placed(board)
                self._run(board, self._memory, blobs)
            except BaseException:
                self.close()
                raise
        return [(perf_counter() - begin) * 1000] if len(self.chain.tasks) == 1 else None

    def _run(self, board: Board, memory: Memory, blobs: dict[str, Array]) -> None:
        made = self.chain
        for blob in made.given:
            made.store(blob, codes_of(blob, blobs, made.shapes, self.places), memory.bytes)
        memory.flush(made.written)
        if made.tasks:
            try:
                board.check()
            except DeviceError:  # somebody has loaded another bitstream
                self.device.forget(board)
                raise
            board.run(memory.addresses[FIXED], made.tasks, self.seconds)
        memory.invalidate(made.read)
        for blob, first, channels in made.wanted:
            out = codes_of(blob, blobs, made.shapes, self.places)[:, first : first + channels]
            made.load(blob, first, out, memory.bytes)

    def close(self) -> None:
        with self._busy:
            if self._memory is not None:
                self._memory.free()
            self._memory = None

    def _placed(self, board: Board) -> Memory:
        """Memory with descriptors and constants in it."""
        try:
            memory = Memory(self.chain.sizes, board.device)
        except DeviceError:
            gc.collect()  # networks that nobody holds any more may wait for it
            memory = Memory(self.chain.sizes, board.device)
        self.chain.fix(memory.addresses, memory.bytes[FIXED])
        memory.flush([FIXED])
        return memory


class Pynq(Device):
    """Boards are opened at the first network and stay open for the process."""

    fixed = True
    hidden = True
    alone = True

    def status(self) -> tuple[bool, str]:
        from .. import overlay as overlays

        obstacle = _obstacle()
        if obstacle:
            return False, obstacle
        built = [name for name in overlays.names() if _bitstream(overlays.load(name))]
        return bool(built), f"bitstreams of {', '.join(built)}" if built else "no bitstream is published yet"

    def compile(
        self,
        overlay: Overlay,
        tasks: Sequence[Task],
        shapes: Mapping[str, Shape],
        places: Mapping[str, tuple[str, int]],
        reads: Collection[str] = (),
        writes: Collection[str] = (),
    ) -> Program:
        self.board(overlay)  # what is missing is said now, not at the first image
        return PynqProgram(self, chain(overlay, tasks, shapes, places, reads, writes), places)

    def board(self, overlay: Overlay) -> Board:
        """The board with this overlay on it. Raises DeviceError."""
        with _opening:
            if overlay.digest not in _boards:
                for other in list(_boards.values()):  # its bitstream is about to be gone
                    self.forget(other)
                _boards[overlay.digest] = Board(overlay)
            return _boards[overlay.digest]

    def forget(self, board: Board) -> None:
        """Open it anew next time."""
        if _boards.get(board.overlay.digest) is board:
            del _boards[board.overlay.digest]
            board.close()


_boards: dict[str, Board] = {}
_opening = threading.RLock()

device = Pynq("pynq", "an overlay on a Zynq board, through pynq")
