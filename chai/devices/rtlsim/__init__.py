"""rtlsim: the accelerator's RTL, simulated cycle by cycle on this machine.

The same descriptors and memory as on a board; needs the extra ``rtl`` and a C++ compiler.
"""

from __future__ import annotations

from ...errors import DeviceError
from ..base import Device, Program, Work
from .building import EXTRA, missing


class RtlSim(Device):
    """A library per overlay is compiled at the first use, and kept in the user's cache."""

    fixed = True
    hidden = True

    def status(self) -> tuple[bool, str]:
        return False, missing() or "the accelerator has no engines yet"

    def compile(self, work: Work) -> Program:
        raise DeviceError(f"rtlsim: {self.status()[1]}", hint=EXTRA)


device = RtlSim("rtlsim", "an accelerator's RTL, simulated cycle by cycle")
