"""Networks on a board: their chains, and the memory that holds them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from ...codegen.chain import Chain, chain, check_descriptors
from ...driver.memory import place, run
from ...errors import DeviceError
from ...tasks.work import Work
from ..base import Device, Program, Ran
from .board import Board
from .finding import bitstream, obstacle
from .memory import Lost, Memory

if TYPE_CHECKING:
    from ...blob import Array, View
    from ...overlay import Overlay

PATIENCE = 20, 1.0  # timeout of a chain: a multiple of the cycle model's estimate, plus seconds


class PynqProgram(Program):
    """A Chain, with memory from the first run to ``close`` or a failure. It uses the board until ``close``."""

    def __init__(self, device: Pynq, made: Chain, views: Mapping[str, View]) -> None:
        self.device = device
        self.chain = made
        self.views = views
        expected = made.cycles / (made.overlay.clock_mhz * 1e6)
        self.seconds = PATIENCE[0] * expected + PATIENCE[1]
        self._memory: Memory | None = None
        self._busy = threading.RLock()

    def run(self, blobs: dict[str, Array]) -> Ran:
        begin = perf_counter()
        board = self.device.board(self.chain.overlay, self)
        with self._busy, board.lock:
            try:
                if self._memory is None:
                    self._memory = self._placed(board)
                device = run(
                    self.chain,
                    self._memory,
                    blobs,
                    self.views,
                    lambda at: board.run(at, self.chain.tasks, self.seconds),
                )
            except BaseException as error:
                if board.stuck and self._memory is not None:
                    _in_danger.append(self._memory)
                    self._memory = None
                self._free()
                if board.stuck or isinstance(error, Lost):
                    self.device.forget(board)
                raise
        return Ran([(perf_counter() - begin) * 1000] if len(self.chain.tasks) == 1 else None, device)

    def close(self) -> None:
        self._free()
        self.device.released(self)

    def _free(self) -> None:
        with self._busy:
            if self._memory is not None:
                self._memory.free()
            self._memory = None

    def _placed(self, board: Board) -> Memory:
        """Return memory with descriptors and constants in it."""
        try:
            memory = Memory(self.chain.sizes, board.device)
        except DeviceError:
            gc.collect()  # unreferenced networks may still hold buffers
            memory = Memory(self.chain.sizes, board.device)
        place(self.chain, memory)
        return memory


class Pynq(Device):
    """The first network opens the board, which stays open until the last one releases it or the process ends."""

    fixed = True
    hidden = True
    alone = True

    def status(self) -> tuple[bool, str]:
        from ... import overlay as overlays

        reason = obstacle()
        if reason:
            return False, reason
        built = [name for name in overlays.names() if bitstream(overlays.load(name))]
        return bool(built), f"bitstreams of {', '.join(built)}" if built else "no bitstream is published yet"

    def compile(self, work: Work) -> Program:
        check_descriptors(work)
        self.board(work.overlay)  # reports what is missing now, not at the first image
        made: Chain = work.chain or chain(work)
        program = PynqProgram(self, made, work.views)
        self.board(work.overlay, program)
        return program

    def board(self, overlay: Overlay, user: Program | None = None) -> Board:
        """Return the board with this overlay loaded, and keep it so for ``user``. Raises DeviceError."""
        with _opening:
            for other in _boards.values():
                other.check_process()
            if overlay.digest not in _boards:
                for other in list(_boards.values()):  # its bitstream is about to be replaced
                    self.forget(other)
                _boards[overlay.digest] = Board(overlay)
                _in_danger.clear()
            board = _boards[overlay.digest]
            if user is not None:
                board.users.add(user)
            return board

    def released(self, user: Program) -> None:
        """Release the board of ``user``."""
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
_in_danger: list[Memory] = []  # an accelerator that no reset stops may write here, until the next download
_opening = threading.RLock()

device = Pynq("pynq", "an overlay on a Zynq board, through pynq")
