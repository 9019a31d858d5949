"""Every blob of a pass as a file, for comparing with another framework (CHAI_DUMP=folder)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .env import env
from .lazy import np

if TYPE_CHECKING:
    from .graph import Array


def dump(blob: str, layer: str, array: Array) -> None:
    """Write ``BLOB.LAYER.npy`` if CHAI_DUMP names a folder; float32 on the host, int8 codes on a device."""
    folder = env().dump
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(
        r"[^A-Za-z0-9_.-]", "_", f"{blob.partition('@')[0]}.{layer}"
    )  # names come from files: no path in them
    np.save(folder / f"{name[:200]}.npy", array)
