"""A board with a bitstream that others published: it has no handoff, and its architecture says how it is driven.

Nothing in such a design says what it is, so it is the file that is known: by its digest. Whatever goes wrong while a program
runs, the bitstream is loaded again before a buffer is given back, since nothing else surely stops what writes there.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...driver.memory import BlobSet, place
from ...env import env
from ...errors import DeviceError
from ...overlay import Overlay
from ...overlay.architecture import Driver, Proof
from ...util.files import sha256
from ...util.log import logger
from ...util.sharing import Mutex
from .board import Board
from .clocks import set_exactly
from .finding import ROOT, active, bitstream
from .memory import Lost, PynqBuffers, answering, kept
from .waiting import Polling

log = logger("chai.pynq")

PATIENCE = 1.0  # seconds that each proof may take


class PublishedBoard(Board):
    """A board whose bitstream this process has loaded, and loads again to stop it."""

    def __init__(self, overlay: Overlay) -> None:
        self.using = Mutex()  # registers are not touched after another bitstream was loaded
        super().__init__(overlay)

    def open(self) -> None:
        own = self.overlay.own
        assert own is not None
        self._design = own.design(self.overlay)
        self._bytes = _bytes(self.overlay, self._design.files)
        self.device = active(self.overlay)
        if env().pynq_wait == "interrupt":
            log.warning("CHAI_PYNQ_WAIT=interrupt: the design has no interrupt; its registers are polled instead")
        self._download()
        import pynq

        with answering("its registers cannot be mapped"):
            spans = self._design.windows.items()
            windows = {name: _Window(self, pynq.MMIO(*span, device=self.device)) for name, span in spans}
        self._driver: Driver = own.driver(self.overlay, windows)
        for proof in self._driver.proofs():
            self._prove(proof)

    def close(self) -> None:
        with self.using:
            self.closed = True
        super().close()

    def check_program(self, segment: Any, memory: PynqBuffers) -> None:
        self._driver.check(segment, memory)

    def run(self, segment: Any, memory: PynqBuffers, seconds: float, expected: float = 0.0) -> float | None:
        self._check_loaded()
        try:
            self.stuck = True
            self._driver.start(segment, memory)
            for late in Polling().looks(seconds, expected):
                ended = self._driver.ended(segment, memory)
                self.check_running()
                if ended:
                    break
                if late:
                    raise self._driver.late(segment, memory, f"{seconds:.1f} s")
            self.stuck = False
        except DeviceError:
            self._stop()
            if not self.closed:
                self._check_loaded()  # that would be the reason
            raise
        except BaseException:  # Ctrl-C too: it must not write into released memory
            self._stop()
            raise
        return None

    def stop(self) -> None:
        if self.closed:
            return  # another bitstream is about to be loaded in its place
        try:
            self._check_loaded()
        except Lost:
            self.stuck = False
            raise
        self._download()
        self.stuck = False

    def _check_loaded(self) -> None:
        """Raise Lost if another process has loaded a bitstream, as far as pynq has noted it."""
        if noted() != self._noted:
            raise Lost("another program has loaded a bitstream", hint="end that program, and load the network again")

    def _stop(self) -> None:
        """Stop it if it runs, or log why it cannot be stopped."""
        try:
            if self.stuck:
                self.stop()
        except Lost:
            pass  # another bitstream is in its place
        except DeviceError as error:
            log.warning("%s; the network's buffers are kept", error.message)

    def _download(self) -> None:
        """Set the clock and load the bitstream, from a folder with nothing else in it. Raises DeviceError."""
        import pynq

        root = f"only root may load a bitstream and set clocks; {ROOT}" if os.geteuid() else ""
        set_exactly(
            self._design.clock, self.overlay.clock_mhz, root or "the board's boot files set the PLLs of its clocks"
        )
        name = f"{self.overlay.name}.bit"
        try:
            with tempfile.TemporaryDirectory(prefix="chai-") as folder:
                path = Path(folder) / name
                path.write_bytes(self._bytes)
                pynq.Bitstream(str(path), device=self.device).download()
        except Exception as error:  # pynq has an error of its own for each
            raise DeviceError(f"{name} cannot be loaded: {error}", hint=root or "power cycle the board") from error
        self._noted = noted()

    def _prove(self, proof: Proof) -> None:
        """Run a proof. Raises DeviceError if it does not come out right."""
        memory = self.memory(proof.segment.sizes)
        used, blobs = BlobSet(proof.segment, memory), dict(proof.inputs)
        try:
            place(proof.segment, memory)
            self.check_program(proof.segment, memory)
            used.store(blobs, {})
            self.run(proof.segment, memory, PATIENCE)
            used.load(blobs, {})
            for blob, codes in proof.outputs.items():
                if wrong := int((blobs[blob] != codes).sum()):
                    raise DeviceError(f"{wrong} of {codes.size} codes are wrong")
        except DeviceError as error:
            raise DeviceError(
                f"the bitstream of overlay {self.overlay.name} does not run {proof.name}: {error.message}",
                hint="nothing else was run on it; power cycle the board, or is the manifest for another board?",
            ) from error
        finally:
            if self.stuck:
                kept.append(memory)
            used.free()


def noted() -> tuple[int, int] | None:
    """Return which download pynq has noted last, by any process; None if it has noted none."""
    from pynq.pl_server import global_state

    place = getattr(global_state, "_get_state_path", lambda: Path(global_state.STATE_DIR, "global_pl_state.json"))
    try:
        state = os.stat(place())
    except OSError:
        return None
    return state.st_mtime_ns, state.st_ino


class _Window:
    """A window of registers of the design that ``board`` has loaded."""

    def __init__(self, board: PublishedBoard, window: Any) -> None:
        self.board, self.window = board, window

    def read(self, offset: int) -> int:
        with self._used(), answering("a register cannot be read"):
            return int(self.window.read(offset))

    def write(self, offset: int, value: int) -> None:
        with self._used(), answering("a register cannot be written"):
            self.window.write(offset, value)

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self.board.using:
            if self.board.closed:
                raise Lost("the board was released while a program ran", hint="load the network again")
            yield


def _bytes(overlay: Overlay, files: Sequence[Any]) -> bytes:
    """Return the bitstream, which is one of ``files``. Raises DeviceError for another file, or none."""
    path = bitstream(overlay)
    if path is None:
        raise DeviceError(
            f"there is no bitstream of overlay {overlay.name} here",
            hint=f"chai fetch {overlay.name}, or put {overlay.name}.bit next to {overlay.path}; "
            f"--device {overlay.simulator} needs no board",
        )
    most = max(each.bytes for each in files)
    with open(path, "rb") as file:
        content = file.read(most + 1)
    digest = sha256(content)
    if digest not in [each.sha256 for each in files]:
        part = " (of its beginning)" if len(content) > most else ""
        raise DeviceError(
            f"{path} is no bitstream that overlay {overlay.name} knows: its sha256 is {digest}{part}",
            hint=f"chai fetch {overlay.name} gets the published one: another may take other instructions, and write anywhere",
        )
    return content
