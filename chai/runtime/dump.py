"""Show the inside of a pass: blobs as files (CHAI_DUMP=folder), times and ranges as log lines (CHAI_DEBUG)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..blob import Array, show
from ..env import env
from ..errors import UsageError
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from pathlib import Path

    from ..graph import Graph
    from .times import Times


def dump(blob: str, layer: str, array: Array) -> None:
    """Write ``BLOB.LAYER.npy`` if CHAI_DUMP names a folder; float32 on the host, int8 codes on a device."""
    folder = env().dump
    if not folder:
        return
    os.makedirs(folder, exist_ok=True)
    np.save(_file(folder, blob, layer), array)


def read_dump(folder: Path, blob: str, layer: str) -> Array:
    """Return the array that ``dump`` wrote for a blob.

    Raises UsageError if the file is missing or has codes of a device.
    """
    file = _file(folder, blob, layer)
    if not os.path.isfile(file):
        raise UsageError(f"there is no {file}", hint=f"run the network with CHAI_DUMP={folder} and --device float")
    array: Array = np.load(file, allow_pickle=False)
    if array.dtype != np.float32:
        raise UsageError(
            f"{file} holds {array.dtype} codes of a device, expected float32", hint="dump with --device float"
        )
    return array


def _file(folder: str | Path, blob: str, layer: str) -> str:
    # names come from untrusted files and must not contain a path
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{blob.partition('@')[0]}.{layer}")
    return os.path.join(folder, f"{name[:200]}.npy")


def log_pass(graph: Graph, values: Mapping[str, Array], times: Times) -> None:
    """Log the time of every step at CHAI_DEBUG=2, and the range of every kept blob at 3."""
    if env().debug < 2:
        return
    from ..util.log import logger  # of which a pass makes no use otherwise

    log = logger("chai")
    for step in times.steps:
        log.info("%-6s %9.3f ms  %s (%s)", step.engine, step.ms, step.name, step.type)
    if env().debug >= 3:
        for blob, value in values.items():
            log.info("%s %s [%g, %g]", graph.caffe_name(blob), show(value.shape), value.min(), value.max())
