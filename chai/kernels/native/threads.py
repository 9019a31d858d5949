"""Count the threads that may run a table."""

from __future__ import annotations

import os
from functools import lru_cache
from math import ceil
from pathlib import Path

from ...env import env

LIBRARIES = ("OPENBLAS", "OMP", "MKL")  # whose limits, as OMP_NUM_THREADS, are limits of chai, too
GROUP = Path("/sys/fs/cgroup")


@lru_cache(maxsize=1)
def threads() -> int:
    """Return CHAI_THREADS; without it the processors that the process may use, and no more than libraries of BLAS may."""
    if env().threads:
        return env().threads
    limits = (os.environ.get(f"{library}_NUM_THREADS", "") for library in LIBRARIES)
    return max(1, min([processors(), *(int(count) for count in limits if count.isdecimal() and len(count) < 10)]))


def processors() -> int:
    """Return the processors that the process may use: by its first thread's affinity, and by its control group's quota."""
    allowed = len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, ceil(quota(GROUP) or allowed)))


def quota(folder: Path) -> float | None:
    """Return the processors' time per time that a control group allows (cpu.max, or version 1's two files)."""
    names = ["cpu.max"] if (folder / "cpu.max").is_file() else ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]
    try:
        limit, period = map(int, " ".join((folder / name).read_text() for name in names).split())
        return limit / period if limit > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # there is none, or it says "max"
        return None
