"""Run Python with this checkout on Arm processors, under qemu-user: downloads Debian's packages, installs none.

Needs a Debian or Ubuntu of x86-64, and ziglang, which compiles the kernels as for the wheel. The folder of the packages may
serve several checkouts; what is in it is not downloaded again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

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
    """A Debian of a machine, unpacked in a folder, with the kernels of this checkout. Raises Unavailable."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder.resolve()
        self.root = self.folder / machine.debian / "root"
        self._emulator = self.folder / "qemu"
        _kernels(self.folder, machine.name)
        _emulator(self._emulator)
        _debian(machine.debian, self.root)
        shutil.copy(_module("threadpoolctl"), self._made("site"))

    def _made(self, name: str) -> Path:
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True)
        return place

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
        python = next(iter(sorted((usr / "bin").glob("python3.[0-9]*"))))
        places = [libraries, libraries / "blas", libraries / "lapack", self.root / "lib" / libraries.name]
        path = [*paths, ROOT, self.folder / "site", usr / "lib" / "python3" / "dist-packages"]
        own = {
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, self._emulator.glob("usr/lib/*-linux-gnu"))),  # of qemu itself
            "PYTHONHOME": str(usr),
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "PYTHONPYCACHEPREFIX": str(self.folder / self.machine.debian / "pycache"),
        }
        qemu = [str(self._emulator / "usr" / "bin" / f"qemu-{self.machine.qemu}"), "-L", str(self.root)]
        guest = ["-E", f"LD_LIBRARY_PATH={os.pathsep.join(map(str, places))}"]
        return subprocess.run(
            [*qemu, *guest, *options, str(python), *arguments],
            env={**os.environ, **own, **(env or {})},
            stdout=output,
            text=True,
            check=False,
        )


def _module(name: str) -> str:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise Unavailable(f"{name} is not installed: pip install {name}")
    return spec.origin


def _kernels(folder: Path, machine: str) -> None:
    """Put the library of a machine beside the sources, compiled as for the wheel, unless it is there."""
    library, digest = Path(build.library(machine)), build.digest()
    if library.exists() and digest.encode() in library.read_bytes():
        return
    cache = folder / "kernels" / digest.replace(" ", "-")
    if not (cache / library.name).exists():
        _module("ziglang")
        cache.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache.parent) as fresh:
            try:
                build.build_all([sys.executable, "-m", "ziglang", "cc"], fresh, [machine])
            except build.Failed as error:
                raise Unavailable(f"the kernels were not compiled: {error}") from error
            cache.mkdir(exist_ok=True)
            for path in Path(fresh).iterdir():
                path.replace(cache / path.name)
    fresh_copy = library.with_name(f".{library.name}.{os.getpid()}")
    shutil.copy(cache / library.name, fresh_copy)
    fresh_copy.replace(library)


def _emulator(folder: Path) -> None:
    """Unpack qemu, and the libraries of it that this system lacks."""
    if not (folder / "complete").exists():
        archives = folder / "debs"
        _download(archives, ["--reinstall", EMULATOR], [])
        _unpack(archives, folder)
        (folder / "complete").touch()


def _debian(architecture: str, root: Path) -> None:
    """Unpack Python and its libraries of an architecture."""
    if (root / "complete").exists():
        return
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
    given = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    _apt([*given, "-qq", "update"], check=False)  # sources that lack the architecture are no error
    _download(here / "debs", [*PACKAGES, *TESTING], given)
    _unpack(here / "debs", root)
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
