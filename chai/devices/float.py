"""float: runs everything on the host in float32, as Caffe does; the reference."""

from __future__ import annotations

import os
import platform

from ..kernels.native.library import description, library
from .base import Device


class FloatDevice(Device):
    """Needs numpy; kernels in C make large networks faster where the processor has AVX512 (docs/kernels.md)."""

    def status(self) -> tuple[bool, str]:
        import numpy as np

        kernels = "" if library() is None else f", {description()}"
        return True, f"{platform.machine()}, {os.cpu_count()} cores, numpy {np.__version__}{kernels}"


device = FloatDevice("float", "the host, float32: equals Caffe")
