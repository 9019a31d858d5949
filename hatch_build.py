"""Compile the kernels while chai is installed or its wheel is built (chai/kernels/native/build.py).

A wheel with the library of this machine is named for it and installs only there. Without a C compiler the installation
succeeds, and a wheel has no library and is for every machine. ``CHAI_BUILD`` asks for another one:

zig    the libraries of all machines in the list, compiled with the ziglang package; each is loaded only where it fits
none   no library
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ZIG = "ziglang==0.13.0.post1"
KINDS = ("", "zig", "none")


class Kernels(BuildHookInterface):
    """Leaves the libraries next to their sources, and puts those that it has compiled, and no others, into the wheel."""

    def dependencies(self) -> list[str]:
        """Return the compiler, if it is to be fetched."""
        return [ZIG] if os.environ.get("CHAI_BUILD") == "zig" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected."""
        kind = os.environ.get("CHAI_BUILD", "")
        if kind not in KINDS:
            self.app.abort(f"CHAI_BUILD is {kind!r}; expected zig (kernels of every machine) or none")
        build = _build(Path(self.root))
        machines: list[str] = []
        try:
            if kind == "zig":
                machines += build.build_all([sys.executable, "-m", "ziglang", "cc"])
            elif not kind:
                build.update()
                machines.append(build.machine())
                build_data["tag"], build_data["pure_python"] = f"py3-none-linux_{build.machine()}", False
        except (build.Failed, OSError) as error:
            if kind:
                self.app.abort(f"the kernels of every machine were not compiled: {error}")
            self.app.display_warning(
                "chai's kernels were not compiled, so that networks take several times as long, in numpy: "
                f"{error}; with a C compiler (e.g. gcc): {sys.executable} -m chai.kernels.native.build"
            )
        for path in map(build.library, machines):
            build_data["force_include"][path] = os.path.relpath(path, self.root)


def _build(root: Path) -> ModuleType:
    """Return build.py, without importing chai, whose dependencies are not installed yet."""
    path = root / "chai" / "kernels" / "native" / "build.py"
    spec = importlib.util.spec_from_file_location("chai_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
