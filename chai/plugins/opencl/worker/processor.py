"""Name the processor to PoCL where its LLVM is older than the processor.

LLVM calls a processor that it does not know "generic", which its own compiler refuses (PoCL's issue 1049; LLVM 14 of the
package for pip knows no AMD processor from 2024 on). PoCL 3 has no setting for the name, so it is set in PoCL's memory,
through a file of Linux that refuses wrong addresses.
"""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

SYMPTOM = "unknown target CPU 'generic'"
_UNKNOWN = b"generic\0"
_EXTENT = 4096  # bytes of PoCL's description of a device, at most
_NAMES = (("avx512f", b"skylake-avx512"), ("avx2", b"haswell"), ("sse2", b"x86-64"))  # as PoCL's own libraries
_kept: list[object] = []  # names that PoCL points to


def name_processor(device: int) -> bool:
    """Set the processor's name in PoCL's description of a device, at this address; return whether that was possible."""
    name = _name()
    if name is None:
        return False
    text = ctypes.create_string_buffer(name)
    with open("/proc/self/mem", "r+b", buffering=0) as memory:

        def read(address: int, size: int) -> bytes:
            try:
                memory.seek(address)
                return memory.read(size)
            except (OSError, OverflowError, ValueError):
                return b""

        pointers = enumerate(struct.unpack(f"{_EXTENT // 8}Q", read(device, _EXTENT).ljust(_EXTENT, b"\0")))
        places = [device + 8 * i for i, pointer in pointers if read(pointer, len(_UNKNOWN)) == _UNKNOWN]
        for place in places:
            memory.seek(place)
            memory.write(struct.pack("Q", ctypes.addressof(text)))
    _kept.append(text)
    return bool(places)


def _name() -> bytes | None:
    """Return the best processor of LLVM whose instructions this one has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return next((name for flag, name in _NAMES if flag in flags), None)
