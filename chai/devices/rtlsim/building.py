"""Compile hardware described in Amaranth into a library that simulates it.

Amaranth -> RTLIL -> yosys (``pyosys``) -> C++ of CXXRTL -> a C++ compiler. A library is kept in the user's cache under a
digest of everything that went into it, so a design is compiled once.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...env import env
from ...errors import DeviceError

HARNESS = Path(__file__).resolve().parent / "harness"
FLAGS = ["-std=c++14", "-O2", "-fPIC", "-shared", "-fno-strict-aliasing", "-DNDEBUG"]
SECONDS = 1800  # a compiler's: a large array on a slow machine takes minutes
EXTRA = "pip install 'chai-fpga[rtl]' installs amaranth, pyosys, and a compiler in case there is none"


def missing() -> str | None:
    """Return what is missing for a simulation, None if nothing is."""
    for package in ("amaranth", "pyosys"):
        if find_spec(package) is None:
            return f"the {package} library is not installed"
    return None if compiler() else "there is no C++ compiler (g++, clang++ or the ziglang library)"


def compiler() -> list[str]:
    """Return the command of a C++ compiler: CXX, g++, clang++ or ziglang; empty if there is none."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++")):
        if shutil.which(name.split()[0]):
            return name.split()
    return [sys.executable, "-m", "ziglang", "c++"] if find_spec("ziglang") else []


def rtlil(component: Any) -> str:
    """Return a component's RTLIL; its clock and reset are the ports ``clk`` and ``rst``."""
    from amaranth.back import rtlil as backend

    return str(backend.convert(component, name="top", emit_src=False))


def library(text: str, waves: bool = False) -> Path:
    """Return the path of the library that simulates RTLIL. ``waves``: it can write every wire into a file.

    Raises DeviceError if a tool is missing or fails.
    """
    reason = missing()
    if reason:
        raise DeviceError(f"the RTL cannot be simulated: {reason}", hint=EXTRA)
    command = [*compiler(), *FLAGS]
    key = _digest(text, str(waves), " ".join(command), _version("pyosys"), *(p.read_text() for p in _sources()))
    target = env().cache / "rtl" / f"{key[:32]}.so"
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.with_suffix(".lock")):
        if not target.is_file():
            with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as folder:
                os.replace(_compiled(text, Path(folder), command, "-g4" if waves else "-g1"), target)
    return target


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Let one process at a time compile a library: the others find it."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# a memory that begins as zeros: Amaranth says so in as many digits, of which yosys would make as many lines of C++
_ZEROS = re.compile(r"^  cell \$meminit_v2 .*\n(?:    .*\n)*?    connect \\DATA \d+'0+\n(?:    .*\n)*?  end\n", re.M)


def _compiled(text: str, folder: Path, command: Sequence[str], debug: str) -> Path:
    (folder / "top.il").write_text(_ZEROS.sub("", text))
    # a process of its own: yosys prints, and ends the process at an error
    script = (
        "from pyosys import libyosys as ys\n"
        "design = ys.Design()\n"
        f"ys.run_pass('read_rtlil top.il', design)\nys.run_pass('write_cxxrtl {debug} top.cpp', design)\n"
    )
    run([sys.executable, "-c", script], folder)
    (folder / "design.cpp").write_text(_design(text))
    parts = [str(folder / "design.cpp"), str(HARNESS / "harness.cpp")]
    run([*command, f"-I{HARNESS}", f"-I{_runtime()}", *parts, "-o", "design.so"], folder)
    return folder / "design.so"


def _design(text: str) -> str:
    """Return the source that names the ports of the generated class."""
    own = {"clk": "clock", "rst": "start"}
    ports = "".join(
        f"    design->{own[name]} = &top.{_mangled(name)};\n"
        if name in own
        else f'    design->ports.push_back(port_of("{name}", top.{_mangled(name)}));\n'
        for name in _ports(text)
    )
    return f"""#include "top.cpp"
#include "cxxrtl_design.h"

Design *make_design() {{
    auto *design = new CxxrtlDesign<cxxrtl_design::p_top>;
    auto &top = design->top;
{ports}    return design;
}}
"""


def _ports(text: str) -> list[str]:
    """Return the ports of the module ``top``."""
    top = text.split("\nmodule \\top\n", 1)[1].split("\nend\n", 1)[0]
    return re.findall(r"^  wire .*(?:input|output) \d+ .*\\(\w+)$", top, re.M)


def _mangled(name: str) -> str:
    return "p_" + name.replace("_", "__")


def _runtime() -> Path:
    """Return the folder of CXXRTL's headers, which come with yosys."""
    spec = find_spec("pyosys")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "share/include/backends/cxxrtl/runtime"


def _sources() -> list[Path]:
    return sorted(HARNESS.iterdir())


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def run(command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None) -> None:
    """Run a tool in a folder. Raises DeviceError with the end of what it printed if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(more or {})},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"the RTL cannot be compiled: {command[0]}: {error}") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise DeviceError(f"the RTL cannot be compiled: {command[0]} ended with {done.returncode}:\n{said}")
