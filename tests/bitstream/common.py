"""A project's folder, and the stand-in for Vivado that builds it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from chai.bitstream.project import Project

from .vivado.standin import Vivado


def written(project: Project, folder: Path) -> Path:
    """Write the folder, with nothing in the core: scripts and packager look at the wrapper's ports alone."""
    project.write(folder)
    (folder / "rtl" / project.sources[1]).write_text("module chai_array_core (\n);\nendmodule\n")
    return folder


def built(project: Project, folder: Path, **options: Any) -> Vivado:
    """Build the folder with a new stand-in, and return it."""
    vivado = Vivado(**options)
    vivado.run(written(project, folder) / "build.tcl")
    return vivado
