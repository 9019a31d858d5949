"""Compile the kernels while chai is installed or its wheel is built (chai/kernels/native/build.py).

Without a C compiler the installation succeeds without them. CHAI_BUILD=zig compiles with the ziglang package, for every
machine in its list.
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


class Kernels(BuildHookInterface):
    """Leaves the libraries beside their sources, where the wheel picks them up."""

    def dependencies(self) -> list[str]:
        """Return the compiler, if it is to be fetched."""
        return [ZIG] if os.environ.get("CHAI_BUILD") == "zig" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected."""
        build = _build(Path(self.root))
        try:
            if os.environ.get("CHAI_BUILD") == "zig":
                build.build_all([sys.executable, "-m", "ziglang", "cc"])
            else:
                build.update()
        except (build.Failed, OSError) as error:
            self.app.display_warning(
                "chai's kernels were not compiled, so that networks take several times as long, in numpy: "
                f"{error}; with a C compiler (e.g. gcc): {sys.executable} -m chai.kernels.native.build"
            )


def _build(root: Path) -> ModuleType:
    """Return build.py, without importing chai, whose dependencies are not installed yet."""
    path = root / "chai" / "kernels" / "native" / "build.py"
    spec = importlib.util.spec_from_file_location("chai_native_build", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
