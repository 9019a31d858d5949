"""Run Python with this checkout on Arm processors, under qemu-user: downloads Debian's packages, installs none.

Needs a Debian or Ubuntu of x86-64, and ziglang, which compiles the kernels as for the wheel. The folder of the packages may
serve several checkouts; what is in it is not downloaded again.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from chai.kernels.native import build

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "arm"
EMULATOR = "qemu-user"  # qemu-user-static, at least 7.2, is built without plugins
PACKAGES = ["python3-numpy", "python3-pil", "python3-protobuf", "python3-rich"]
TESTING = ["python3-pytest", "python3-pytest-timeout", "python3-hypothesis"]


class Unavailable(Exception):
    """Raised if a program or package is missing; its text says which, and what to do."""


@dataclass(frozen=True)
class Machine:
    """An Arm processor: its name, Debian's and qemu's names of the architecture, and the processor of chai's boards."""

    name: str
    debian: str
    qemu: str
    cpu: str


MACHINES = {
    machine.name: machine
    for machine in (
        Machine("armv7l", "armhf", "arm", "cortex-a9"),  # PYNQ-Z1, PYNQ-Z2
        Machine("aarch64", "arm64", "aarch64", "cortex-a53"),  # Ultra96, KV260, ZCU102, ZCU104
    )
}


class Guest:
    """A Debian of a machine, unpacked in a folder, with the kernels of this checkout.

    Raises Unavailable, and Failed if the kernels cannot be compiled.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder.resolve()
        self.root = self.folder / machine.debian / "root"
        self._emulator = self.folder / "qemu"
        site = self.folder / "site"
        site.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # of another process that prepares the same folder
            _kernels(self.folder, machine.name)
            _emulator(self._emulator)
            _debian(machine.debian, self.root)
            shutil.copy(_module("threadpoolctl"), site)

    @property
    def version(self) -> int:
        """Return the first number of qemu's version. Raises Unavailable if it does not run here."""
        done = subprocess.run(
            [self._qemu, "--version"], env={**os.environ, **self._own}, capture_output=True, text=True, check=False
        )
        number = re.search(r"version (\d+)\.", done.stdout)
        if number is None:
            raise Unavailable(f"qemu does not run here: {done.stderr.strip() or done.returncode}")
        return int(number[1])

    @property
    def python(self) -> str:
        """Return the version of its Python, e.g. 3.11."""
        return self._python.name.removeprefix("python")

    @property
    def _python(self) -> Path:
        return next(iter(sorted((self.root / "usr" / "bin").glob("python3.[0-9]*"))))

    @property
    def _qemu(self) -> str:
        return str(self._emulator / "usr" / "bin" / f"qemu-{self.machine.qemu}")

    @property
    def _own(self) -> dict[str, str]:
        """Return the environment of qemu itself."""
        return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, self._emulator.glob("usr/lib/*-linux-gnu")))}

    def run(
        self,
        arguments: Sequence[str],
        *,
        paths: Sequence[Path] = (),
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        output: int | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments; ``paths`` come first on its path, ``options`` are qemu's, ``output`` is for stdout."""
        usr = self.root / "usr"
        (libraries,) = (usr / "lib").glob("*-linux-gnu*")
        places = [libraries, libraries / "blas", libraries / "lapack", self.root / "lib" / libraries.name]
        path = [*paths, ROOT, self.folder / "site", usr / "lib" / "python3" / "dist-packages"]
        settings = {
            "PYTHONHOME": str(usr),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTHONPYCACHEPREFIX": str(self.folder / self.machine.debian / "pycache"),
        }
        guest = ["-E", f"LD_LIBRARY_PATH={os.pathsep.join(map(str, places))}"]
        return subprocess.run(
            [self._qemu, "-L", str(self.root), *guest, *options, str(self._python), *arguments],
            env={**os.environ, **self._own, **settings, **(env or {})},
            stdout=output,
            text=True,
            check=False,
        )


def _module(name: str, version: str = "") -> str:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise Unavailable(f"{name} is not installed: pip install {name}{version}")
    return spec.origin


def _kernels(folder: Path, machine: str) -> None:
    """Put the library of a machine beside the sources, compiled as for the wheel, unless it is there."""
    library, digest = Path(build.library(machine)), build.digest()
    if library.exists() and digest.encode() in library.read_bytes():
        return
    cache = folder / "kernels" / digest.replace(" ", "-")
    if not (cache / library.name).exists():
        _module("ziglang", "==0.13.0.post1 (as in hatch_build.py)")
        cache.mkdir(parents=True, exist_ok=True)
        print(f"compile the kernels of {machine}", file=sys.stderr, flush=True)
        build.build_all([sys.executable, "-m", "ziglang", "cc"], cache, [machine])
    fresh_copy = library.with_name(f".{library.name}.{os.getpid()}")
    shutil.copy(cache / library.name, fresh_copy)
    fresh_copy.replace(library)


def _emulator(folder: Path) -> None:
    """Unpack qemu, and the libraries of it that this system lacks."""
    if not (folder / "complete").exists():
        print("download qemu", file=sys.stderr, flush=True)
        archives = folder / "debs"
        _download(archives, ["--reinstall", EMULATOR], [])
        _unpack(archives, folder)
        (folder / "complete").touch()


def _debian(architecture: str, root: Path) -> None:
    """Unpack Python and its libraries of an architecture."""
    if (root / "complete").exists():
        return
    print(f"download Python of {architecture}", file=sys.stderr, flush=True)
    here = root.parent
    (here / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (here / "status").touch()
    options = {
        "Dir::State": here,
        "Dir::State::Lists": here / "lists",
        "Dir::State::status": here / "status",
        "Dir::Cache": here,
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    _apt([*flags, "-qq", "update"], check=False)  # sources that lack the architecture are no error
    _download(here / "debs", [*PACKAGES, *TESTING], flags)
    _unpack(here / "debs", root)
    if not (root / "lib").exists():  # as a package that is not unpacked has it
        (root / "lib").symlink_to("usr/lib")
    (root / "complete").touch()


def _download(archives: Path, packages: Sequence[str], options: Sequence[str]) -> None:
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    apart = ["-o", f"Dir::Cache::archives={archives}/", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"]
    _apt([*options, *apart, "-qq", "-y", "--download-only", "--no-install-recommends", "install", *packages])


def _apt(arguments: Sequence[str], check: bool = True) -> None:
    """Run apt-get. Raises Unavailable with its words."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("apt-get and dpkg are not here: a Debian or Ubuntu is needed")
    done = subprocess.run(["apt-get", *arguments], capture_output=True, text=True, check=False)
    if check and done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["without a word"]
        raise Unavailable(f"apt-get failed: {last[0]} (apt-get update may help)")


def _unpack(archives: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for package in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(package), str(folder)], check=True)
