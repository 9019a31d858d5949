"""Measure what one core can do at best: products per second in registers (peak.c), and bytes per second through memcpy."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from chai.errors import UsageError
from chai.kernels.native import build, library
from chai.util.lazy_numpy import np

SIZES = {"cache": 1 << 17, "memory": 1 << 26}  # bytes of a copy: both sides in the second cache, and in none
_TIMES = 6  # copies of the larger size
_FLOAT = {  # instructions of float32 of a variant
    "amx": "float512",
    "avx512vnni": "float512",
    "avxvnni": "float256",
    "avx2": "float256",
}


class Roof(NamedTuple):
    """``instructions`` names what the peak is of. 10^9 products per second; 10^9 bytes read and written per second."""

    instructions: str
    products: float
    bytes: Mapping[str, float]


def roof(fixed: bool) -> Roof:
    """Return the roof of one core for the kernels in use: products of 8 bits if ``fixed``, else of float32.

    Raises UsageError without a C compiler, and for instructions that peak.c does not know.
    """
    measured = peaks()
    used = library.library()
    if used is None:  # numpy's own kernels, in float32
        name = next((each for each in _FLOAT.values() if each in measured), "")
    else:
        name = used.name if fixed else _FLOAT.get(used.name, "")
    if name not in measured:
        raise UsageError(f"the peak of {used.name if used else 'this processor'} is not known", hint="see peak.c")
    return Roof(name, measured[name], {level: bandwidth(size) for level, size in SIZES.items()})


def peaks() -> dict[str, float]:
    """Return the products in a nanosecond that a core can do at best with each set of instructions. Raises UsageError."""
    source = Path(__file__).with_name("peak.c")
    try:
        with tempfile.TemporaryDirectory(prefix="chai-peak-") as folder:
            program = str(Path(folder, "peak"))
            amx = ["-mamx-tile", "-mamx-int8"] if library.variant("amx") else []
            command = [*build.compiler(), "-O2", *amx, str(source), "-o", program]
            subprocess.run(command, check=True, capture_output=True)
            lines = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    except build.Failed as error:
        raise UsageError(str(error), hint="install a C compiler, e.g. gcc") from error
    except subprocess.CalledProcessError as error:
        raise UsageError(
            f"{Path(error.cmd[0]).name} failed on {source.name}", hint="CC names another compiler"
        ) from error
    return {name: float(value) for name, value in map(str.split, lines)}


def bandwidth(size: int) -> float:
    """Return the bytes per nanosecond that a copy of ``size`` bytes reads and writes at best."""
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    addresses = target.ctypes.data, source.ctypes.data
    best = float("inf")
    for _ in range(_TIMES if size > 1 << 20 else 100 * _TIMES):
        begin = perf_counter()
        ctypes.memmove(*addresses, size)
        best = min(best, perf_counter() - begin)
    return 2 * size / best / 1e9
