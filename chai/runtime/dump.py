"""Write every blob of a pass to a file, to compare with another framework (CHAI_DUMP=folder)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from ..env import env
from ..errors import UsageError
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array


def dump(blob: str, layer: str, array: Array) -> None:
    """Write ``BLOB.LAYER.npy`` if CHAI_DUMP names a folder; float32 on the host, int8 codes on a device."""
    folder = env().dump
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    np.save(_file(folder, blob, layer), array)


def read_dump(folder: Path, blob: str, layer: str) -> Array:
    """Return the array that ``dump`` wrote for a blob. Raises UsageError if the file is missing or has codes of a
    device."""
    file = _file(folder, blob, layer)
    if not file.is_file():
        raise UsageError(f"there is no {file}", hint=f"run the network with CHAI_DUMP={folder}")
    array: Array = np.load(file, allow_pickle=False)
    if array.dtype != np.float32:
        raise UsageError(
            f"{file} holds {array.dtype} codes of a device, expected float32", hint="dump with --device float"
        )
    return array


def _file(folder: Path, blob: str, layer: str) -> Path:
    # names come from untrusted files and must not contain a path
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{blob.partition('@')[0]}.{layer}")
    return folder / f"{name[:200]}.npy"
