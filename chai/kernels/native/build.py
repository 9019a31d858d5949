"""Compile the kernels for this machine: ``python -m chai.kernels.native.build``.

The installation runs this file, too, before chai can be imported: it uses the standard library alone. An instruction set
that the compiler does not know is left out. Each start of chai compares the digest: what only a compilation needs is
imported in its functions.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import StrPath

FOLDER = os.path.dirname(os.path.abspath(__file__))
COMMAND = "python -m chai.kernels.native.build"
EXPORTS = "{ global: chai_*; local: *; };"
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-pthread",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-Wall",
    "-Wextra",
]
_AVX512VNNI = ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni"]
# of each machine, best first, with the compiler's flags; the last two of x86_64 are for tests
VARIANTS: dict[str, dict[str, list[str]]] = {
    "x86_64": {
        "amx": [*_AVX512VNNI, "-mamx-tile", "-mamx-int8"],
        "avx512vnni": _AVX512VNNI,
        "avxvnni": ["-mavx2", "-mfma", "-mavxvnni"],
        "avx2": ["-mavx2", "-mfma"],
        "plain": [],
        "amx_vnni": _AVX512VNNI,
        "amx_plain": [],
    },
    "aarch64": {"dotprod": ["-march=armv8.2-a+dotprod"], "neon": [], "plain": []},
    "armv7l": {"neon": ["-mfpu=neon"], "plain": []},
}
ZIG = {  # of each machine: the system that its library runs on, at least, and what zig calls the instruction sets
    "x86_64": (
        "x86_64-linux-gnu.2.17",
        {
            "amx": "x86_64_v4+avx512vnni+amx_tile+amx_int8",
            "avx512vnni": "x86_64_v4+avx512vnni",
            "avxvnni": "x86_64_v3+avxvnni",
            "avx2": "x86_64_v3",
            "plain": "x86_64",
        },
    ),
    "aarch64": ("aarch64-linux-gnu.2.17", {"dotprod": "generic+dotprod", "neon": "generic", "plain": "generic"}),
    "armv7l": ("arm-linux-gnueabihf.2.27", {"neon": "cortex_a9-expand_fp_mlx", "plain": "cortex_a9"}),
}
COMMON = ("boxes", "check", "processor", "pool", "run")  # compiled once


class Failed(Exception):
    """Raised if there is no compiler, or it cannot compile the kernels; its text says which."""


def machine() -> str:
    """Return the machine's name in file names: x86_64, aarch64, armv7l, ..."""
    name = os.uname().machine.lower() if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "").lower()
    if sys.maxsize < 1 << 32:  # a system of 32 bits on a processor of 64
        name = {"aarch64": "armv7l", "armv8l": "armv7l", "x86_64": "i686"}.get(name, name)
    return "x86_64" if name == "amd64" else name


def library(name: str = "") -> str:
    """Return the path of a machine's library, which may not exist."""
    return f"{FOLDER}/chai-{name or machine()}.so"


def digest() -> str:
    """Return a digest of sources and flags, which a library carries."""
    crc = 0  # each start pays for it, and it is to notice edits only: hashlib loads OpenSSL, pathlib takes as long as this
    for name in sorted(name for name in os.listdir(FOLDER) if name.endswith((".c", ".h")) or name == "build.py"):
        with open(f"{FOLDER}/{name}", "rb", buffering=0) as file:
            crc = zlib.crc32(file.read(), zlib.crc32(name.encode() + b"\0", crc))
    return f"sources {crc:08x}"


def compiler() -> list[str]:
    """Return the command of the C compiler: CC if that is set, else cc, gcc or clang. Raises Failed if there is none."""
    import shutil

    own = os.environ.get("CC", "").split()
    for command in [own] if own else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise Failed(
        f"CC names {own[0]!r}, which is no command here" if own else "there is no C compiler (cc, gcc or clang)"
    )


def build(
    target: StrPath | None = None, command: Sequence[str] = (), extra: Sequence[str] = (), only: Collection[str] = ()
) -> list[str]:
    """Compile the library of this machine and return its variants; it replaces ``target`` when it is complete.

    ``command`` is the compiler, ``extra`` are further flags for it, after its own. ``only`` some variants, if any
    are named. Raises Failed.
    """
    variants = VARIANTS.get(machine(), {"plain": []})
    chosen = {name: [*flags, *extra] for name, flags in variants.items() if name in only or not only}
    return _build(os.fspath(target or library()), command or compiler(), chosen)


def build_all(
    command: Sequence[str], folder: StrPath = FOLDER, machines: Sequence[str] = tuple(ZIG)
) -> dict[str, list[str]]:
    """Compile the libraries of these machines, and return their variants; ``command`` is zig's C compiler. Raises Failed."""
    variants = {}
    for name in machines:
        system, sets = ZIG[name]
        flags = {variant: [f"-mcpu={cpu}"] for variant, cpu in sets.items()}
        variants[name] = _build(
            os.path.join(folder, os.path.basename(library(name))), [*command, "-target", system], flags
        )
        if variants[name] != [*sets]:
            raise Failed(f"{name}: only {', '.join(variants[name])} of {', '.join(sets)} were compiled")
    return variants


def _build(target: str, cc: Sequence[str], variants: Mapping[str, Sequence[str]]) -> list[str]:
    import tempfile
    from concurrent.futures import ThreadPoolExecutor

    with tempfile.TemporaryDirectory(prefix="chai-native-") as folder:

        def compiled(variant: str) -> str:
            defined = [f"-DVARIANT={variant}", f'-DSET="{variant}.h"']
            source = "amx.c" if variant.startswith("amx") else "variant.c"
            named = ["-c", f"{FOLDER}/{source}", "-o", f"{folder}/{variant}.o"]
            return _run([*cc, *FLAGS, *variants[variant], *defined, *named])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            problems = dict(zip(variants, pool.map(compiled, variants)))
        for variant, problem in problems.items():
            if problem:
                sys.stderr.write(f"{variant} is left out: {problem}\n")
        done = [variant for variant, problem in problems.items() if not problem]
        objects = [f"{folder}/{variant}.o" for variant in done]
        if not done:
            raise Failed(f"{cc[0]} cannot compile {FOLDER}/variant.c")
        for part in COMMON:
            object_file = f"{folder}/{part}.o"
            listed = " ".join(f"V({variant})" for variant in done)
            defined = [f'-DDIGEST="{digest()}"', f"-DVARIANTS={listed}"]
            lowest = variants[done[-1]]
            _run([*cc, *FLAGS, *lowest, *defined, "-c", f"{FOLDER}/{part}.c", "-o", object_file], must=True)
            objects.append(object_file)
        aside = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}")
        exports = f"{folder}/exports.map"
        with open(exports, "w", encoding="ascii") as file:
            file.write(EXPORTS)
        link = ["-shared", "-s", "-Wl,--gc-sections", f"-Wl,--version-script={exports}"]
        try:
            _run([*cc, *variants[done[-1]], *link, *objects, "-o", aside], must=True)
            os.replace(aside, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(aside)
    return done


def _run(command: list[str], must: bool = False) -> str:
    """Run a compiler and return its first error, "" if there is none. Raises Failed if it ``must`` succeed."""
    import subprocess

    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{command[0]}: {error}") from error
    if must and done.returncode:
        raise Failed(f"{' '.join(command)}\n{done.stderr}")
    lines = done.stderr.splitlines() or [f"{command[0]} ended with {done.returncode}"]
    return next((line for line in lines if "error" in line), lines[0]) if done.returncode else ""


def update() -> None:
    """Compile the library of this machine if there is none of these sources. Raises Failed."""
    try:
        with open(library(), "rb") as file:
            known = digest().encode() in file.read()
    except OSError:
        known = False
    if not known:
        build()


def main() -> int:
    """Compile for this machine and say what was made."""
    try:
        variants = build()
    except (Failed, OSError) as error:
        sys.stderr.write(f"no kernels were compiled: {error}\n")
        return 1
    sys.stdout.write(f"{library()}: {', '.join(variants)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
