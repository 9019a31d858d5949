"""The environment variables of chai, read once (the table in README.md lists them)."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from .errors import UsageError

THREADS = 256  # at most: as many as share a run of the kernels in C


class Env(NamedTuple):
    """Paths are texts, as pathlib takes long to load.

    device: name of the selected device, or ""; debug: 0..3; custom: files or folders of custom layers.

    check: whether every Task is compared with its definition, and OpenCL kernels have to write all of their tops;
    dump: folder to write every blob to, or "".
    cache: folder of fetched weights; pynq_wait: how to wait for a board, "poll" or "interrupt".
    opencl_inprocess: whether OpenCL kernels run in the process of the network.
    kernels: variant of the compiled kernels, "sgemm" for none of them, or "" for the best; threads: how many run them,
    or 0 for as many as the process may use.
    rtl_vcd: file for the waves of a simulated accelerator, or "".
    """

    device: str
    debug: int
    custom: tuple[str, ...]
    limits: str
    check: bool
    dump: str
    cache: str
    pynq_wait: str
    opencl_inprocess: bool
    kernels: str
    rtl_vcd: str
    threads: int


@lru_cache(maxsize=1)
def env() -> Env:
    """Read the environment variables of ``Env``; paths in CHAI_CUSTOM are separated by os.pathsep. Raises UsageError."""
    debug = _number("CHAI_DEBUG", "a number from 0 to 3", most=3)
    wait = os.environ.get("CHAI_PYNQ_WAIT") or "poll"
    if wait not in ("poll", "interrupt"):
        raise UsageError(f"CHAI_PYNQ_WAIT is {wait!r}; expected poll or interrupt", hint="unset CHAI_PYNQ_WAIT")
    base = os.environ.get("XDG_CACHE_HOME", "")  # relative paths are ignored
    base = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    threads = _number("CHAI_THREADS", "a number, at least 1")
    return Env(
        device=os.environ.get("CHAI_DEVICE", ""),
        debug=debug,
        custom=tuple(filter(None, os.environ.get("CHAI_CUSTOM", "").split(os.pathsep))),
        limits=os.environ.get("CHAI_LIMITS", ""),
        check=os.environ.get("CHAI_CHECK", "0") not in ("", "0"),
        dump=os.environ.get("CHAI_DUMP", ""),
        cache=os.environ.get("CHAI_CACHE") or os.path.join(base, "chai"),
        pynq_wait=wait,
        opencl_inprocess=os.environ.get("CHAI_OPENCL_INPROCESS", "0") not in ("", "0"),
        kernels=os.environ.get("CHAI_KERNELS", ""),
        rtl_vcd=os.environ.get("CHAI_RTL_VCD", ""),
        threads=min(threads, THREADS),
    )


def _number(name: str, expected: str, most: int = 10**9) -> int:
    """Return the value of a variable, 0 if it is not set. int() takes no more than 4,300 digits."""
    text = os.environ.get(name) or "0"
    if not text.isdecimal() or len(text) > 9 or int(text) > most:
        shown = text if len(text) <= 40 else f"{text[:37]}..."
        raise UsageError(f"{name} is {shown!r}; expected {expected}", hint=f"unset {name}")
    return int(text)
