"""Run chai on a board's processor architecture under qemu: install, demo, an artifact, and the tests.

    sudo python tools/architectures.py arm64             # KV260, Ultra96, ZCU10x: aarch64, with numba
    sudo python tools/architectures.py armhf             # PYNQ-Z1/Z2, ZedBoard: armv7l, without it
    sudo python tools/architectures.py armhf tests/tasks tests/test_net.py    # these tests instead of all fast ones

Needs root and Debian's packages debootstrap, qemu-user-static and binfmt-support. The first run builds a Debian of that
architecture (five minutes); later runs reuse it. Emulation is slower than a board: ignore all times in the output.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
RELEASE, PYTHON = "bookworm", "3.11"
TOOLS = ("debootstrap", "update-binfmts")
BASE = "python3,python3-venv,python3-pip,ca-certificates"
FROM_PYPI = ["rich", "threadpoolctl", "pytest", "pytest-timeout", "hypothesis", "hatchling"]
ARCHITECTURES = {
    # the kernel's name, the boards' processor, an overlay for it, packages from Debian, packages from PyPI
    "arm64": ("aarch64", "cortex-a53", "kv260", BASE, ["numpy", "protobuf", "pillow", "numba", "jsonschema"]),
    "armhf": (
        "armv7l", "cortex-a9", "pynq-z2", f"{BASE},python3-numpy,python3-pil,python3-protobuf,python3-jsonschema", [],
    ),
}  # fmt: skip
Run = Callable[..., int]
MANYLINUX = ("2_17", "2_27", "2_28")
DIGITS = "/src/prototxt/digits_images"


def main() -> int:
    """Run everything and return the exit status of the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architecture", choices=ARCHITECTURES)
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp/chai-architectures"), help="where Debians are kept"
    )
    parser.add_argument("--no-tests", action="store_true", help="only install, the demo and an artifact")
    parser.add_argument("tests", nargs="*", help="what pytest shall run; behind -- its options too")
    args = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid():
        parser.error("it takes root" if os.geteuid() else f"{missing[0]} is not installed")
    system = debian(args.folder, args.architecture)
    with inside(system, ARCHITECTURES[args.architecture][1]) as run:
        install(system, args.architecture, run)
        run("uname -m; python -c 'import chai.plugins.compiling as c; print(\"numba:\", c.available())'")
        run("chai demo --output /tmp/demo.png")
        overlay = ARCHITECTURES[args.architecture][2]
        run(f"chai compile digits --overlay {overlay} --calibration {DIGITS} -o digits.chai")
        run(f"chai run digits.chai -i {DIGITS}")
        if args.no_tests:
            return 0
        return run(
            "cd /src && python -m pytest -q -p no:cacheprovider --timeout 3600 " + " ".join(args.tests), check=False
        )


def debian(folder: Path, architecture: str) -> Path:
    """Return a Debian's root folder; build it if it is missing or incomplete."""
    system, done = folder / architecture, folder / f"{architecture}.done"
    if not done.exists():
        remove(system)
        folder.mkdir(parents=True, exist_ok=True)
        packages = f"--include={ARCHITECTURES[architecture][3]}"
        command = ["debootstrap", f"--arch={architecture}", "--variant=minbase", packages, RELEASE, str(system)]
        subprocess.run([*command, *mirror()], check=True)
        done.touch()
    return system


def remove(system: Path) -> None:
    """Delete a Debian, after unmounting what an interrupted debootstrap left mounted in it."""
    for name in ("proc", "sys", "dev/pts"):
        if (system / name).is_mount():
            subprocess.run(["umount", str(system / name)], check=True)
    subprocess.run(["rm", "-rf", "--one-file-system", str(system)], check=True)


def mirror() -> list[str]:
    """Return this machine's Debian mirror; empty on other systems, where debootstrap uses its default."""
    if shutil.which("apt-get") is None:
        return []
    uris = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian"], capture_output=True, text=True
    ).stdout.split()
    return uris[:1]


@contextmanager
def inside(system: Path, processor: str) -> Iterator[Run]:
    """Yield ``run(command, check=True)``, which runs a shell command in the Debian and returns its exit status.

    ``processor`` is named to qemu because its default has every extension, so BLAS would use code that no board can run.
    """

    def run(command: str, check: bool = True) -> int:
        print(f"--- {command.strip()}", flush=True)
        setting = "export PATH=/venv/bin:$PATH HOME=/tmp LANG=C.UTF-8 OPENBLAS_NUM_THREADS=1; cd /tmp; set -e; "
        whole = ["chroot", str(system), "/bin/sh", "-c", setting + command]
        return subprocess.run(whole, check=check, env={**os.environ, "QEMU_CPU": processor}).returncode

    with (
        mounted("proc", system / "proc"),
        mounted("devpts", system / "dev" / "pts"),
    ):  # pseudo-terminals: tests open some
        yield run


@contextmanager
def mounted(kind: str, place: Path) -> Iterator[None]:
    """Mount a kernel file system inside the context."""
    subprocess.run(["mount", "-t", kind, kind, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def install(system: Path, architecture: str, run: Run) -> None:
    """Install the wheel of this checkout and its dependencies in /venv, and copy the checkout to /src."""
    machine, *_, binary = ARCHITECTURES[architecture]
    with TemporaryDirectory() as folder:
        wheels = Path(folder)
        pip = [sys.executable, "-m", "pip"]
        no_library = {**os.environ, "CHAI_BUILD": "none"}
        subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", folder, str(ROOT)], check=True, env=no_library)
        (wheel,) = wheels.glob("*.whl")
        assert wheel.name.endswith("-py3-none-any.whl"), wheel.name
        platforms = ["any"] + [f"manylinux_{glibc}_{machine}" for glibc in MANYLINUX] * bool(binary)
        only = [f"--platform={p}" for p in platforms]
        options = ["-q", "--only-binary=:all:", f"--python-version={PYTHON}", *only, "-d", folder]
        subprocess.run([*pip, "download", *options, *FROM_PYPI, *binary], check=True)
        shutil.rmtree(system / "wheels", ignore_errors=True)
        shutil.copytree(wheels, system / "wheels")
    shutil.rmtree(system / "src", ignore_errors=True)
    (system / "src").mkdir()
    checkout = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", str(system / "src")], input=checkout, check=True)
    packages = f"/wheels/{wheel.name} " + " ".join([*FROM_PYPI, *binary])
    run(
        "rm -rf /venv; python3 -m venv --system-site-packages /venv; "
        f"pip install -q --no-index --find-links /wheels {packages}"
    )


if __name__ == "__main__":
    sys.exit(main())
