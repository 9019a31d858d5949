"""float: runs everything on the host in float32, as Caffe does; the reference."""

from __future__ import annotations

import os
import platform

from .base import Device


class FloatDevice(Device):
    """Needs only numpy."""

    def status(self) -> tuple[bool, str]:
        import numpy as np

        return True, f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}"


device = FloatDevice("float", "the host, float32: equals Caffe")
