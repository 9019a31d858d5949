"""Test environments of chai: ``nox`` runs all of them (pip install nox uv), ``nox -t ci`` the first four.

tests    this Python, with the newest dependencies; then with the libraries of the extras opencl, hdf5 and video, the tests that
         need them; ruff and mypy
numpy    this Python, in a copy of the checkout, without a C compiler on PATH: no kernels; with -- tests: the whole suite
driver   this Python, the pynq library on a simulated board, and the tools of the extra rtl: a small array, simulated
docs     the pages as a site, in build/site: links are checked, diagrams drawn, nothing is loaded from elsewhere
lint     ruff and mypy alone, as .pre-commit-config.yaml has them
board    Python 3.10 with the oldest versions supported (constraints-board.txt)
newest   other Pythons, with the newest dependencies
rtl      this Python, and the tools of the extra rtl; with -- -m slow: whole networks on the real array
pynq     the tests of the driver with all versions of pynq and Python; with -- -m slow: installing into an image's
         environment, and the driver on the RTL
wheel    dist/*.whl with the kernels of every machine, compiled by zig; the same bytes each time
arm      the Arm kernels under qemu-user
arm_cost instructions of passes on Arm processors under qemu-user: their tests and goals; with -- NET: of a network
sanitise the kernels' tests with an address sanitiser, and with a thread sanitiser
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import nox

ROOT = Path(__file__).parent.resolve()
nox.options.default_venv_backend = "venv"
os.environ["PIP_NO_COMPILE"] = "1"  # Python compiles what it imports; all of it takes half of an installation's time
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or each of the suite's processes compiles all of its modules again
# for two processors, as some tests wait; a file's tests share its fixtures, and long files are not left for the end
WORKERS = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]
CHECKS = ["pre-commit", "run", "--all-files"]
EXTRAS = ["tests/opencl", "tests/pycaffe", "tests/frames", "tests/cli/test_video.py"]  # have tests that need an extra
RTL = ["tests/rtl", "tests/devices/rtlsim"]
KERNELS = [
    "kernels",
    "runtime",
    "artifact",
    "tasks",
    "custom/test_start.py",
]  # of tests/: most of what runs without them
SAME = [
    "tasks/test_define.py",
    "tasks/test_lowering.py",
]  # of these: they choose their kernels, with or without a compiler
COMPILERS = {"c89", "c99", "cc", "c++", "clang", "clang++", "gcc", "g++", "tcc", "zig"}
ZIG = "ziglang==0.13.0.post1"  # as in hatch_build.py
LAST = "3.1.2"  # the last pynq that supports the Zynq-7000


def install(session: nox.Session, *packages: str, env: Mapping[str, str] | None = None) -> None:
    """Install with uv, in seconds where pip takes a minute; with pip if uv fails or is not there.

    uv does not read pip's settings, which may name another index.
    """
    uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", f"{session.bin}/python"]
    try:
        session.run_install(*uv, *packages, env=env, external=True)
    except nox.command.CommandFailed:
        session.install(*packages, env=env)


@nox.session(tags=["ci"])
def tests(session: nox.Session) -> None:
    """Run the suite without the libraries of optional extras, then the tests that need them; check style and types."""
    install(session, "-e", ".[dev,bench]")
    session.run("python", "-m", "pytest", "-q", *WORKERS, *session.posargs)
    session.run(*CHECKS)
    if not session.posargs:
        install(session, "-e", ".[opencl,hdf5,video]")
        session.run("python", "-m", "pytest", "-q", "-m", "extras", *EXTRAS, *WORKERS)


@nox.session(tags=["ci"])
def numpy(session: nox.Session) -> None:
    """Run tests where no kernels were compiled."""
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder)
    copy, programs = folder / "checkout", folder / "programs"
    unwanted = ("*.so", ".git", ".nox", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "build", "dist")
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*unwanted))
    programs.mkdir()
    for place in map(Path, reversed(os.environ["PATH"].split(os.pathsep))):  # the first of a name wins
        for program in place.iterdir() if place.is_dir() else ():
            if not COMPILERS.intersection(program.name.split("-")):  # x86_64-linux-gnu-gcc-12
                (programs / program.name).unlink(missing_ok=True)
                (programs / program.name).symlink_to(program)
    env = {"PATH": f"{session.bin}{os.pathsep}{programs}", "CC": ""}
    for name, shared in (("CHAI_TEST_DATA", "models"), ("CHAI_TEST_VECTORS", "vectors")):
        env[name] = os.environ.get(name, str(ROOT.parent / "shared" / shared))
    session.chdir(copy)
    install(session, "-e", ".[test]", env=env)
    assert not [*copy.glob("chai/kernels/native/*.so")]
    without = [f"--ignore=tests/{name}" for name in SAME]
    tests = session.posargs or [*without, *(f"tests/{name}" for name in KERNELS)]
    session.run("python", "-m", "pytest", "-q", *WORKERS, *tests, env=env)


@nox.session(tags=["ci"])
def driver(session: nox.Session) -> None:
    """Test the driver through pynq, and simulate the accelerator's RTL."""
    through_pynq(session, LAST, *RTL)


@nox.session(tags=["ci"])
def docs(session: nox.Session) -> None:
    """Build the site."""
    install(session, "mkdocs-material>=9.5", "mermaidx>=0.10")
    session.run("mkdocs", "build", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types."""
    install(session, "-e", ".[test,lint]")
    session.run(*CHECKS)


@nox.session(python="3.10")
def board(session: nox.Session) -> None:
    """Run the suite on a board's versions; what [dev] adds needs a newer numpy and protobuf."""
    install(session, "-e", ".[test]", "-c", "constraints-board.txt")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session
def rtl(session: nox.Session) -> None:
    """Simulate the accelerator's RTL."""
    install(session, "-e", ".[test,rtl]")
    session.run("python", "-m", "pytest", "-q", *RTL, *WORKERS, *session.posargs)


@nox.session(python=["3.14", "3.13", "3.12"])
def newest(session: nox.Session) -> None:
    """Run the suite on the newest versions."""
    install(session, "-e", ".[dev,bench]")
    session.run("python", "-m", "pytest", "-q", *session.posargs)


@nox.session(python=["3.10", "3.12"])  # the boards' version, and the newest with a wheel of pynq's grpcio
@nox.parametrize("version", ["3.0.1", "3.1.1", LAST, "4.0.0"])
def pynq(session: nox.Session, version: str) -> None:
    """Test the driver through each version of pynq."""
    through_pynq(session, version)


def through_pynq(session: nox.Session, version: str, *more: str) -> None:
    """Run more tests, whose few long ones begin first, and tests/devices/pynq, with this version of pynq."""
    published = LAST if version == "3.1.1" else version
    install(session, "-e", ".[test,pynq,rtl]", f"pynq=={published}", "hatchling>=1.18")
    if version != published:  # it depends on an address, which pip refuses even without dependencies
        install(session, "uv")
        session.run("uv", "pip", "install", "-q", "--python", f"{session.bin}/python", "--no-deps", f"pynq=={version}")
    session.run("python", "-m", "pytest", "-q", *more, "tests/devices/pynq", *WORKERS, *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Build the wheel to publish."""
    session.run("python", "-m", "pip", "wheel", "-q", "--no-deps", "-w", "dist", ".", env={"CHAI_BUILD": "zig"})


@nox.session
def arm(session: nox.Session) -> None:
    """Test the Arm kernels."""
    install(session, "-e", ".", ZIG)
    session.run("python", "-m", "tools.arm_cost.kernels", *session.posargs)


@nox.session
def arm_cost(session: nox.Session) -> None:
    """Count instructions on Arm processors."""
    install(session, "-e", ".[dev]", ZIG)
    if session.posargs:
        session.run("python", "-m", "tools.arm_cost", *session.posargs)
    else:
        session.run("python", "-m", "pytest", "-q", "-m", "slow or not slow", "tests/tools/test_arm_cost.py")


@nox.session
def sanitise(session: nox.Session) -> None:
    """Run the kernels' tests with gcc's sanitisers: of addresses, with each blob in an allocation of its own; of threads."""
    install(session, "-e", ".[dev]")
    for kind in ("address", "thread"):
        session.run("python", "tools/sanitise.py", kind, *session.posargs)
