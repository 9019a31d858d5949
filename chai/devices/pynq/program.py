"""Networks on a board: their chains, and the memory that holds them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Any

from ... import overlay as overlays
from ...blob import Array
from ...codegen.compile import executable
from ...driver.memory import NONE, BlobSet, NoRoom
from ...errors import DeviceError
from ...overlay import Overlay
from ...tasks.work import Work
from ...util.sharing import Mutex
from ..base import Device, Program, Ran
from ..placed import PlacedProgram, check_hardware
from .array import ArrayBoard
from .board import Board
from .finding import about, bitstream, obstacle
from .memory import Lost, PynqBuffers, kept
from .published import PublishedBoard

PATIENCE = 20, 1.0  # timeout of a program: a multiple of the cycle model's estimate, plus seconds


class PynqProgram(PlacedProgram):
    """A Chain, or what the overlay's architecture has instead, for the Tasks of ``work``. It uses the board until ``close``."""

    def __init__(self, device: Pynq, segment: Any, work: Work) -> None:
        super().__init__(segment, work.views)
        self.device = device
        self._alone = len(work.tasks) == 1  # else the time of each is unknown
        self.expected = segment.cycles / (segment.overlay.clock_mhz * 1e6)
        self.seconds = PATIENCE[0] * self.expected + PATIENCE[1]
        self._opened: Board | None = None  # that it uses
        self._running: tuple[Board, Any] | None = None  # and the buffers, as long as it runs
        self._busy = Mutex()

    def claim(self, lease: Collection[object], wake: Callable[[], object] | None = None) -> BlobSet | None:
        self._board()  # even in a set that is there a fork would write into buffers of its parent
        return super().claim(lease, wake)

    def run_in(
        self, used: BlobSet, blobs: dict[str, Array], packed: Collection[str] = NONE, unpacked: Collection[str] = NONE
    ) -> Ran:
        begin, board = perf_counter(), self._board()
        memory: Any = used.memory
        with self._busy, board.lock:
            self._running = board, memory
            try:
                start = partial(board.run, self.segment, memory, self.seconds, self.expected)
                device = used.run(blobs, self.views, start, packed, unpacked)
            except BaseException as error:
                self._keep(board, memory)
                self.failed()
                if board.stuck or isinstance(error, Lost):
                    self.device.forget(board)
                raise
            finally:
                self._running = None
        return Ran([(perf_counter() - begin) * 1000] if self._alone else None, device)

    def close(self) -> None:
        with self._busy:
            if self._running:
                board, memory = self._running
                if board.stuck:  # a signal's handler closes it while it runs
                    with suppress(DeviceError):
                        board.stop()
                self._keep(board, memory)
            self.release()
        self._opened = None
        self.device.released(self)

    def _keep(self, board: Board, memory: PynqBuffers) -> None:
        """Keep the buffers of a set, and those that all have in common, if the board may still write there."""
        if board.stuck:
            kept.append(memory)

    def _board(self) -> Board:
        """Return the board, opened again if it has been closed. Raises DeviceError."""
        board = self._opened
        if board is None or board.closed:
            board = self._opened = self.device.board(self.segment.overlay, self)
        board.check_process()
        return board

    def _placed(self) -> BlobSet:
        board = self._board()
        try:
            return super()._placed()
        except Lost:
            self.device.forget(board)
            raise

    def _memory(self, sizes: Mapping[int, int], first: PynqBuffers | None) -> PynqBuffers:
        board = self._board()
        try:
            return board.memory(sizes, first)
        except NoRoom:
            gc.collect()  # unreferenced networks may still hold buffers
            return board.memory(sizes, first)

    def _check(self, memory: PynqBuffers) -> None:
        self._board().check_program(self.segment, memory)


class Pynq(Device):
    """The first network opens the board, which stays open until the last one releases it or the process ends."""

    fixed = True
    placed = True
    hidden = True
    alone = True

    def status(self) -> tuple[bool, str]:
        reason = obstacle()
        if reason:
            return False, reason
        built = [name for name in overlays.names() if bitstream(overlays.load(name))]
        return bool(built), f"bitstreams of {', '.join(built)}" if built else "no bitstream is here"

    def about(self, overlay: Overlay) -> list[tuple[str, str]]:
        return about(overlay)

    def checks(self, overlay: Overlay) -> Iterator[tuple[str, str]]:
        return self.board(overlay).checks()

    def compile(self, work: Work) -> Program:
        self.board(work.overlay)  # reports what is missing now, not at the first image
        segment = work.chain or executable(work)
        program = PynqProgram(self, segment, work)
        self.board(work.overlay, program)
        return program

    def buffers(self, overlay: Overlay, size: int) -> PynqBuffers:
        return PynqBuffers({0: size}, self.board(overlay).device, overlay.coherent)

    def board(self, overlay: Overlay, user: Program | None = None) -> Board:
        """Return the board with this overlay loaded, and keep it so for ``user``. Raises DeviceError."""
        check_hardware(overlay)
        with _opening:
            for other in _boards.values():
                other.check_process()
            if overlay.digest not in _boards:
                for other in list(_boards.values()):  # its bitstream is about to be replaced
                    self.forget(other)
                _boards[overlay.digest] = (ArrayBoard if overlay.own is None else PublishedBoard)(overlay)
                kept.clear()
            board = _boards[overlay.digest]
            if user is not None:
                board.users.add(user)
            return board

    def released(self, user: Program) -> None:
        with _opening:
            for board in _boards.values():
                board.users.discard(user)

    def leave(self) -> None:
        with _opening:
            for board in list(_boards.values()):
                if not board.users:
                    self.forget(board)

    def forget(self, board: Board) -> None:
        """Drop the board, so that the next use opens it again."""
        if _boards.get(board.overlay.digest) is board:
            del _boards[board.overlay.digest]
            board.close()


_boards: dict[str, Board] = {}
_opening = Mutex()

device = Pynq("pynq", "an overlay on a Zynq board, through pynq")
