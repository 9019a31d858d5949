"""Facts of a board for a report: which one it is, its image, the bitstream."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ...overlay import Overlay
from ...util.files import digest
from .finding import bitstream

MODEL, RELEASE = Path("/proc/device-tree/model"), Path("/etc/os-release")


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
