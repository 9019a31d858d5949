"""CXXRTL: yosys turns a design into one C++ class."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ...errors import DeviceError
from .tools import HARNESS, compiled, package, ports, run, yosys

_LOOPS = re.compile(r"contains feedback arcs through wires:\n((?:  \S.*\n)+)")


def build(text: str, folder: Path, command: Sequence[str], waves: bool = False) -> Path:
    """Return the library of a design's RTLIL, made in a folder; ``waves``: it knows the names of all wires.

    Raises DeviceError if one evaluation of a cycle is not enough: a part of a wire depends on another part of it.
    """
    (folder / "top.il").write_text(text)
    printed = yosys(folder, "read_rtlil top.il", f"write_cxxrtl -g{4 if waves else 1} top.cpp")
    loops = [name for names in _LOOPS.findall(printed) for name in names.split()]
    if loops or "feedback wires" in printed:
        message = f"CXXRTL would compute wrong values: parts of a wire depend on other parts of it: {', '.join(loops)}"
        raise DeviceError(message, hint="give each part a Signal of its own, or simulate with Verilator")
    (folder / "design.cpp").write_text(_source([*ports(text)]))
    headers = package("pyosys") / "share/include/backends/cxxrtl/runtime"
    harness = compiled(command, HARNESS / "harness.cpp", [])
    run([*command, f"-I{HARNESS}", f"-I{headers}", "design.cpp", harness, "-o", "design.so"], folder)
    return folder / "design.so"


def _source(names: Sequence[str]) -> str:
    """Return the source that lists the ports of the generated class."""
    own = {"clk": "clock", "rst": "start"}
    lines = "".join(
        f"    design->{own[name]} = &top.{_mangled(name)};\n"
        if name in own
        else f'    design->add("{name}", top.{_mangled(name)});\n'
        for name in names
    )
    if "clk" in names:
        lines += f"    design->before = &top.prev_{_mangled('clk')};\n"
    return f"""#include "top.cpp"
#include "cxxrtl_design.h"

Design *make_design() {{
    auto *design = new CxxrtlDesign<cxxrtl_design::p_top>;
    auto &top = design->top;
{lines}    return design;
}}
"""


def _mangled(name: str) -> str:
    return "p_" + name.replace("_", "__")
