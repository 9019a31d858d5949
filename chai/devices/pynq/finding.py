"""Find the board: its lock, its bitstream, pynq's device and driver for it, and facts of all of them for a report."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...env import env
from ...errors import DeviceError
from ...overlay import Overlay
from ...util.files import digest
from .clocks import set_clock

LOCKS = Path("/run/lock")
MODEL, RELEASE = Path("/proc/device-tree/model"), Path("/etc/os-release")
ROOT = "sudo drops what pynq needs: sudo -E, or a login shell (sudo -i)"


def claim() -> int:
    """Return the lock of the only FPGA, for any overlay. Raises DeviceError that names the process that holds it."""
    folder = LOCKS if os.access(LOCKS, os.W_OK) else Path(tempfile.gettempdir())
    # the folder is world-writable: refuse symlinks
    file = os.open(folder / "chai-board.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        owner = os.pread(file, 20, 0).decode("ascii", "replace").strip()
        os.close(file)
        raise DeviceError(
            f"the board is in use by process {owner or 'unknown'}",
            hint="one process at a time has it: close the networks there (net.close()), or end that process",
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, str(os.getpid()).encode(), 0)
    return file


def bitstream(overlay: Overlay) -> Path | None:
    """Return the path of the bitstream, if it or a link to it exists: next to the manifest, or where it was fetched to."""
    path = overlay.path.resolve().parent / f"{overlay.name}.bit"
    if overlay.own is not None:
        return next((each for each in (path, Path(env().cache, path.name)) if each.exists()), None)
    beside = (path, path.with_name(path.name + ".d"), path.with_name(path.name + ".link"))
    return path if any(p.exists() for p in beside) else None


def obstacle() -> str | None:
    """Return why there is no board here, as far as known without pynq; None if there may be one."""
    if find_spec("pynq") is None:
        return "the pynq library is not installed"
    if "XILINX_XRT" not in os.environ:
        return "XILINX_XRT is not set"
    if os.geteuid():
        return "registers can be mapped by root alone"
    return None


def active(overlay: Overlay) -> Any:
    """Return pynq's active device, fit for an overlay. Raises DeviceError with what may be missing."""
    reason = obstacle()
    if find_spec("pynq") is None:
        raise DeviceError("the pynq library is not installed", hint="it is part of a PYNQ board's image")
    import pynq

    try:
        device = pynq.Device.active_device
    except (RuntimeError, NameError, AttributeError) as error:  # what pynq says depends on its version
        board = "" if os.environ.get("BOARD") else "; BOARD is not set either"
        raise DeviceError(f"pynq finds no board here ({reason or error})", hint=ROOT + board) from error
    if overlay.family == "zynq7000" and int(pynq.__version__.split(".")[0]) > 3:
        message = f"pynq {pynq.__version__} no longer knows the Zynq-7000 of overlay {overlay.name}"
        raise DeviceError(message, hint="pynq 3.1.2 is the last that does (boards' images have 3.0 or 3.1)")
    return device


def download(overlay: Overlay) -> tuple[Any, Any, Path, float | None]:
    """Load an overlay's bitstream; return pynq's device, the accelerator's driver, the handoff, and its MHz, None if unknown.

    Raises DeviceError.
    """
    path = bitstream(overlay)
    if path is None:
        raise DeviceError(
            f"no bitstream of overlay {overlay.name} is published yet",
            hint=f"chai overlay build {overlay.name} -o DIR (docs/build.md); put {overlay.name}.bit and {overlay.name}.hwh "
            f"beside {overlay.path}; --device emulator computes the same bits",
        )
    device = active(overlay)
    import pynq

    path = _followed(path)
    driver = _driver(overlay.vlnv)
    try:
        loaded = pynq.Overlay(str(path), device=device)
    except Exception as error:
        missing = "" if path.with_suffix(".hwh").exists() else f"; {path.stem}.hwh has to be in the same folder"
        raise DeviceError(
            f"{path.name} cannot be loaded: {error}{missing}",
            hint=f"registers can be mapped by root alone; {ROOT}" if os.geteuid() else "both files come from one build",
        ) from error
    names = [name for name, about in loaded.ip_dict.items() if about["type"] == overlay.vlnv]
    if not names:
        kinds = ", ".join(sorted(about["type"] for about in loaded.ip_dict.values())) or "nothing"
        message = f"{path.name} has no {overlay.vlnv}, only {kinds}"
        raise DeviceError(message, hint="it is the bitstream of something else")
    block = getattr(loaded, names[0])
    if not isinstance(block, driver):
        raise DeviceError(f"{path.name}: {names[0]} was given the driver {type(block).__name__}, not chai's")
    handoff = Path(loaded.bitfile_name).with_suffix(".hwh")
    return device, block, handoff, set_clock(overlay, handoff, loaded.ip_dict[names[0]]["fullpath"])


@lru_cache(maxsize=8)
def _driver(vlnv: str) -> Any:
    """Return the class that pynq binds to the accelerator; making it registers it.

    ``pins`` are its interrupts. pynq would open them at once, in the event loop of this thread, which may have none.
    """
    import pynq

    def begin(self: Any, description: dict[str, Any]) -> None:
        self.pins = [about["fullpath"] for about in description.get("interrupts", {}).values()]
        pynq.DefaultIP.__init__(self, {**description, "interrupts": {}})

    about = {"bindto": [vlnv], "__doc__": "An accelerator of chai.", "__init__": begin}
    return type("Accelerator", (pynq.DefaultIP,), about)


# -- links, and folders with a bitstream per board


def _followed(path: Path) -> Path:
    """Return the bitstream of this board: the file, the target of a link, or this board's in the folder of all boards.

    Links are followed by pynqutils, which compares their checksums; it puts NAME.bit.link of many boards into
    NAME.bit.d/NAME.BOARD.bit, and the handoff into a folder of its own, where pynq would not find it.
    """
    if path.exists():
        return path
    board = os.environ.get("BOARD", "")
    own = path.with_name(f"{path.name}.d") / f"{path.stem}.{board}.bit"
    if not own.exists() and path.with_name(f"{path.name}.link").exists():
        _follow(path, board)
    handoff = path.with_name(f"{path.stem}.hwh.d") / f"{path.stem}.{board}.hwh"
    if own.exists() and handoff.exists() and not own.with_suffix(".hwh").exists():
        shutil.copyfile(handoff, own.with_suffix(".hwh"))
    return own if own.exists() else path  # pynq has its own names for boards


def _follow(path: Path, board: str) -> None:
    import pynqutils

    # pynqutils makes the folders too, but not a second time in one process, and it removes them after a failure
    folders = [link.with_suffix(".d") for link in path.parent.glob(f"{path.stem}.*.link")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    try:
        pynqutils.setup_utils.download_overlays(str(path.parent), fail_at_lookup=True)
    except Exception as error:
        which = f"{path.name}.link has to name the board, BOARD says {board!r}" if board else "BOARD is not set"
        message = f"{path.name}.link leads nowhere: {error}"
        raise DeviceError(message, hint=f"{which}; its md5sum has to be that of the file at its url") from error
    finally:
        for folder in folders:
            with suppress(OSError):  # it is not empty, or it is gone
                folder.rmdir()


# -- facts for a report


def about(overlay: Overlay) -> list[tuple[str, str]]:
    """Return names and values, none without a bitstream; what is unknown says so."""
    path = bitstream(overlay)
    if path is None:
        return []
    return [
        ("board", f"{_text(MODEL).strip(chr(0)) or 'unknown'}, BOARD {os.environ.get('BOARD') or 'not set'}"),
        ("image", f"{_release()}, Linux {platform.release()}, Python {platform.python_version()}, pynq {_pynq()}"),
        ("overlay", f"{overlay.name}, build {overlay.build:08x}"),
        ("bitstream", _identity(path)),
    ]


def _identity(bitstream: Path) -> str:
    if not bitstream.is_file():
        return "by a link"
    try:
        return f"sha256 {digest(bitstream)}"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()
    except OSError:
        return ""


def _release() -> str:
    lines = (line.partition("=") for line in _text(RELEASE).splitlines())
    return next((value.strip('"') for name, _, value in lines if name == "PRETTY_NAME"), "unknown")


def _pynq() -> str:
    try:
        return version("pynq")
    except PackageNotFoundError:
        return "not installed"
