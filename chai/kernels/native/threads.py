"""Count the threads that may run a table."""

from __future__ import annotations

import os
from functools import lru_cache
from math import ceil

from ...env import env

LIBRARIES = ("OPENBLAS", "OMP", "MKL")  # whose limits, as OMP_NUM_THREADS, are limits of chai, too
GROUP = "/sys/fs/cgroup"


@lru_cache(maxsize=1)
def threads() -> int:
    """Return CHAI_THREADS; without it the processors that the process may use, and no more than libraries of BLAS may."""
    if env().threads:
        return env().threads
    texts = (os.environ.get(f"{library}_NUM_THREADS", "") for library in LIBRARIES)
    limits = [max(1, int(text)) for text in texts if text.isdecimal() and len(text) < 10]
    return 1 if 1 in limits else min([processors(), *limits])


def processors() -> int:
    """Return the processors that the process may use: by its first thread's affinity, and by its control group's quota."""
    allowed = len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, ceil(quota(GROUP) or allowed)))


def quota(folder: str) -> float | None:
    """Return the processors' time per time that a control group allows (cpu.max, or version 1's two files)."""
    names = ["cpu.max"] if os.path.isfile(f"{folder}/cpu.max") else ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]
    try:
        limit, period = map(int, " ".join(_text(f"{folder}/{name}") for name in names).split())
        return limit / period if limit > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # there is none, or it says "max"
        return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
