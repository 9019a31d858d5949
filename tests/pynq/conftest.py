"""A board for every test, or a printed reason why there is none."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chai import overlay as overlays
from chai.devices import pynq as driver

if find_spec("pynq"):
    with warnings.catch_warnings():  # of a processor that is no Zynq, of what its libraries still use
        warnings.simplefilter("ignore")
        import pynq
        import pynq.pl_server.embedded_device
        import pynqmetadata.frontends  # noqa: F401
    VERSION = int(pynq.__version__.split(".")[0])


class Clock:
    """Time passes when somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(driver, "monotonic", made.monotonic)
    monkeypatch.setattr(driver, "sleep", made.sleep)
    return made


@pytest.fixture
def board_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[Callable[..., Any]]:
    """``board_of("ultra96", **options)``: pynq's active device; its overlay folder is beside the test's files."""
    from .board import Board
    from .hardware_files import bitstream, handoff

    def make(name: str = "pynq-z2" if VERSION < 4 else "ultra96", **options: Any) -> Any:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        shutil.copy(overlays.load(name).path, folder)
        overlay = overlays.load(folder)
        (folder / f"{name}.hwh").write_bytes(handoff(overlay))
        (folder / f"{name}.bit").write_bytes(bitstream(overlay))
        board = Board(overlay, **options)
        pynq.Device.active_device = board
        pynq.Clocks.__dict__.get("_real_instance") and delattr(pynq.Clocks, "_real_instance")
        return board

    monkeypatch.setattr(driver, "LOCKS", tmp_path)
    yield make
    for opened in list(driver._boards.values()):
        driver.device.forget(opened)
    if "_active_device" in pynq.Device.__dict__:
        del pynq.Device._active_device


@pytest.fixture
def board(board_of: Callable[..., Any]) -> Any:
    return board_of()
