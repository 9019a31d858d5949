"""The environment variables of chai, read once (the table in README.md lists them)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .errors import UsageError


@dataclass(frozen=True)
class Env:
    """device: name of the device asked for, or ""; debug: 0..3; custom: files or folders of custom layers.

    check: whether every Task is compared with its definition; dump: folder that every blob is written to, or None.
    """

    device: str
    debug: int
    custom: tuple[Path, ...]
    limits: str
    check: bool
    dump: Path | None


@lru_cache(maxsize=1)
def env() -> Env:
    """CHAI_DEVICE, CHAI_DEBUG, CHAI_CUSTOM (os.pathsep between places), CHAI_LIMITS, CHAI_CHECK, CHAI_DUMP."""
    debug = os.environ.get("CHAI_DEBUG", "0") or "0"
    if not debug.isdecimal():
        raise UsageError(f"CHAI_DEBUG is {debug!r}; expected a number from 0 to 3")
    places = [p for p in os.environ.get("CHAI_CUSTOM", "").split(os.pathsep) if p]
    return Env(
        device=os.environ.get("CHAI_DEVICE", ""),
        debug=int(debug),
        custom=tuple(Path(p) for p in places),
        limits=os.environ.get("CHAI_LIMITS", ""),
        check=os.environ.get("CHAI_CHECK", "0") not in ("", "0"),
        dump=Path(os.environ["CHAI_DUMP"]) if os.environ.get("CHAI_DUMP") else None,
    )
