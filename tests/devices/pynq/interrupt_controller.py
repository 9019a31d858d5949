"""The interrupt controller of the simulated board."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import tty
from collections.abc import Callable
from contextlib import suppress


class Controller:
    """An AXI interrupt controller with one input (PG099), and /dev/uioN behind it: a terminal that speaks its language.

    The host writes 4 bytes to let the next interrupt through and reads 4 bytes when one came. An input that is a level
    stands again as soon as it is acknowledged; one that is an ``edge`` does not.
    """

    def __init__(self, line: Callable[[], bool], edge: bool) -> None:
        self.line, self.edge = line, edge
        self.values = {0x08: 0, 0x1C: 0}  # IER, MER
        self.pending = self.before = self.open = False
        self.count = 0
        self.host, end = os.openpty()
        tty.setraw(end)
        self.path = os.ttyname(end)
        self.end = end  # kept open: a terminal that nobody has open is gone
        os.set_blocking(self.host, False)

    def read(self, offset: int) -> int:
        self.look()
        return {0x00: self.pending, 0x04: self.pending & self.values[0x08]}.get(offset, self.values.get(offset, 0))

    def write(self, offset: int, value: int) -> None:
        if offset == 0x0C:  # IAR
            self.pending = self.pending and not value & 1
        elif offset in (0x10, 0x14):  # SIE, CIE
            self.values[0x08] = self.values[0x08] | value if offset == 0x10 else self.values[0x08] & ~value
        else:
            self.values[offset] = value
        self.look()

    def look(self) -> None:
        """Let an interrupt through that can get through."""
        now = self.line()
        self.pending = self.pending or (now and not (self.edge and self.before))
        self.before = now
        with suppress(BlockingIOError):
            self.open = bool(os.read(self.host, 4096)) or self.open
        if self.open and self.pending and self.values[0x08] & 1 and self.values[0x1C] & 1:
            self.open = False
            self.count += 1
            os.write(self.host, struct.pack("<I", self.count))

    @property
    def coming(self) -> bool:
        """Whether an interrupt is on its way to the host."""
        unread = struct.unpack("i", fcntl.ioctl(self.end, termios.FIONREAD, bytes(4)))[0]
        return self.pending or unread > 0

    def close(self) -> None:
        os.close(self.end)
        os.close(self.host)
