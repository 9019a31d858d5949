"""Compile hardware described in Amaranth into a library that simulates it.

Amaranth -> RTLIL -> yosys (``pyosys``) -> C++ of CXXRTL, or Verilog and C++ of Verilator -> a C++ compiler. CXXRTL compiles
small designs sooner, and writes waves; Verilator is several times as fast, and of a large design the first, too. A design is
compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from ...util.interpreter import Uncollected
from . import cxxrtl, verilator
from .tools import EXTRA, FLAGS, HARNESS, compiler, kept, missing, release

# "waves" can write every wire into a file; it takes longer to compile
SIMULATORS: dict[str, Callable[[str, Path, Sequence[str]], Path]] = {
    "cxxrtl": cxxrtl.build,
    "waves": partial(cxxrtl.build, waves=True),
    "verilator": verilator.build,
}
# a memory that begins as zeros: Amaranth says so in as many digits, of which yosys would make as many lines of C++
_ZEROS = re.compile(r"^  cell \$meminit_v2 .*\n(?:    .*\n)*?    connect \\DATA \d+'0+\n(?:    .*\n)*?  end\n", re.M)


def fastest() -> str:
    """Return the simulator for a whole accelerator: Verilator, where it is installed."""
    return "verilator" if verilator.found() else "cxxrtl"


def rtlil(component: Any) -> str:
    """Return a component's RTLIL; its clock and reset are the ports ``clk`` and ``rst``. Memories of zeros have no content."""
    from amaranth.back import rtlil as backend

    with Uncollected():  # it takes a third less time, and for zcu102 half a gigabyte more
        return _ZEROS.sub("", str(backend.convert(component, name="top", emit_src=False)))


def library(text: str, simulator: str = "cxxrtl") -> Path:
    """Return the path of the library that simulates RTLIL. Raises DeviceError if a tool is missing or fails."""
    reason = missing()
    if reason:
        raise DeviceError(f"the RTL cannot be simulated: {reason}", hint=EXTRA)
    command = [*compiler(), *FLAGS]
    tools = [_version("pyosys"), release(compiler()), str(verilator.found()), verilator.version()]
    sources = *sorted(HARNESS.iterdir()), Path(cxxrtl.__file__), Path(verilator.__file__)
    texts = (path.read_text() for path in sources)
    return kept(
        ".so",
        lambda folder: SIMULATORS[simulator](text, folder, command),
        *(text, simulator, *command, *tools, *texts),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
