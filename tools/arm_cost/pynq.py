"""Stand-in for the pynq library: a board whose accelerator computes nothing, and is done at the third read of its status.

It has what chai's driver calls, and no more. Buffers are plain memory, of zeros: outputs are what was there before.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from chai import overlay as overlays

__version__ = "3.1.2"
LOOKS = 3
PAGE = 4096
_addresses = count(0x1000_0000, 0x400_0000)


class Buffer(np.ndarray):  # numpy before 1.22 has no types in brackets
    """A buffer in contiguous memory."""

    device_address: int

    def flush(self) -> None:
        """Do nothing: the accelerator reads nothing."""

    def invalidate(self) -> None:
        """Do nothing: the accelerator writes nothing."""


class Board:
    """The device: it has memory."""

    def allocate(self, shape: tuple[int, ...], dtype: str, cacheable: bool) -> Buffer:
        """Return zeros, at an address of their own."""
        assert cacheable
        buffer = np.zeros(shape, dtype).view(Buffer)
        buffer.device_address = next(_addresses)
        return buffer


class Device:
    """pynq's list of devices."""

    active_device = Board()


class DefaultIP:
    """The accelerator's registers, with the ID and BUILD of its overlay; ``bindto`` are the accelerators of a class."""

    bindto: list[str] = []

    def __init__(self, description: dict[str, Any]) -> None:
        overlay = description["overlay"]
        registers = overlay.registers
        self._values = {register.offset: register.value or 0 for register in registers.list}
        self._values[registers["BUILD"].offset] = overlay.build
        self._status, self._control = registers["STATUS"].offset, registers["CONTROL"].offset
        self._count, self._finished = registers["COUNT"].offset, registers["DONE"].offset
        self._start = registers["CONTROL"].mask("start")
        self._busy, self._done = (registers["STATUS"].mask(name) for name in ("busy", "done"))
        self._looks = 0

    def read(self, offset: int) -> int:
        """Return a register's value; at the third look at STATUS the chain is done."""
        if offset == self._status and self._looks:
            self._looks -= 1
            if not self._looks:
                self._values[offset] = self._done
        return self._values[offset]

    def write(self, offset: int, value: int) -> None:
        """Set a register's value, and start a chain: one engine is said to finish all its Tasks."""
        self._values[offset] = value
        if offset == self._control and value & self._start:
            self._looks = LOOKS
            self._values[self._status] = self._busy
            self._values[self._finished] = self._values[self._count]


class Overlay:
    """A loaded bitstream: an accelerator, of the manifest beside it."""

    def __init__(self, path: str, device: Board) -> None:
        overlay = overlays.load(Path(path).parent)
        description = {"type": overlay.vlnv, "fullpath": "accelerator", "overlay": overlay}
        self.bitfile_name, self.ip_dict = path, {"accelerator": description}
        (driver,) = (cls for cls in DefaultIP.__subclasses__() if overlay.vlnv in cls.bindto)
        self.accelerator = driver(description)
