"""A board for every test, or a printed reason why there is none."""

from __future__ import annotations

import gc
import shutil
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chai import overlay as overlays
from chai.devices.pynq import finding, program, waiting
from chai.evaluate import selftest

from .clock import Clock

if find_spec("pynq"):
    with warnings.catch_warnings():  # of a processor that is no Zynq, of what its libraries still use
        warnings.simplefilter("ignore")
        import pynq
        import pynq.interrupt
        import pynq.pl_server.embedded_device
        import pynq.ps
        import pynqmetadata.frontends  # noqa: F401
    VERSION = int(pynq.__version__.split(".")[0])
    ZYNQ_7000 = pytest.mark.skipif(VERSION >= 4, reason="pynq 4 has no Zynq-7000")
    ANY = "pynq-z2" if VERSION < 4 else "ultra96"  # an overlay whose boards this pynq supports


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake_clock = Clock()
    monkeypatch.setattr(waiting, "monotonic", fake_clock.monotonic)
    monkeypatch.setattr(waiting, "sleep", fake_clock.sleep)
    monkeypatch.setattr(waiting, "until", fake_clock.until)
    return fake_clock


_probes: dict[int, Any] = {}  # by the digest of their overlay


@pytest.fixture(autouse=True)
def _definitions_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all tests of an overlay have the same probes, which keep what their definitions give."""
    probes = selftest.probes

    def known(overlay: overlays.Overlay) -> Any:
        if overlay.build not in _probes:
            _probes[overlay.build] = probes(overlay)
        return _probes[overlay.build]

    monkeypatch.setattr(selftest, "probes", known)


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Take all that is loaded out of the searches for garbage: a test may make hundreds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def board_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Callable[..., Any]]:
    """``board_of("ultra96", **options)``: pynq's active device; its overlay folder is beside the test's files.

    An overlay's name, or the path of its manifest.
    """
    from .board import Board
    from .hardware_files import bitstream, handoff, name_digest
    from .vta_board import VtaBoard

    def make(source: str | Path = ANY, **options: Any) -> Any:
        name = overlays.load(source).name
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        shutil.copy(overlays.load(source).path, folder)
        (folder / f"{name}.bit").write_bytes(bitstream(overlays.load(folder)))
        if overlays.load(source).own is None:
            overlay = overlays.load(folder)
            (folder / f"{name}.hwh").write_bytes(handoff(overlay, interrupt=bool(options.get("interrupt"))))
            board = Board(overlay, clock, **options)
        else:
            name_digest(folder / "overlay.json", folder / f"{name}.bit")
            board = VtaBoard(overlays.load(folder), clock, **options)
        clock.boards.append(board)
        pynq.Device.active_device = board
        if pynq.__version__ < "3.1":  # which takes the processor that Python runs on for the board's
            monkeypatch.setattr(pynq.ps, "CPU_ARCH", board.arch)
        monkeypatch.setattr(pynq.interrupt, "get_uio_irq", lambda _: board.controller and board.controller.path)
        # what pynq keeps for the process: clocks of the board it has seen first
        "_real_instance" in pynq.Clocks.__dict__ and delattr(pynq.Clocks, "_real_instance")
        pynq.Clocks.device = None
        return board

    monkeypatch.setattr(finding, "LOCKS", tmp_path)
    yield make
    for opened in list(program._boards.values()):
        program.device.forget(opened)
    for board in clock.boards:
        board.controller and board.controller.close()
    if "_active_device" in pynq.Device.__dict__:
        del pynq.Device._active_device


@pytest.fixture
def board(board_of: Callable[..., Any]) -> Any:
    return board_of()
