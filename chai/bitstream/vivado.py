"""Run Vivado on a project's folder, and tell how far it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ..errors import DeviceError

LOG = "vivado.out"
_STAGE = re.compile(r"(\d+)/(\d+) ")


def script(ooc: bool) -> str:
    """Return the name of the script that builds, or that places and routes the accelerator alone."""
    return "ooc.tcl" if ooc else "build.tcl"


def installed() -> str:
    """Return the path of vivado. Raises DeviceError if it is not on the PATH."""
    program = shutil.which("vivado")
    if program is None:
        raise DeviceError(
            "there is no vivado on the PATH",
            hint="source .../Vivado/VERSION/settings64.sh; without --run the folder is written, and the command printed",
        )
    return program


def run(program: str, folder: Path, ooc: bool, tell: Callable[[int, int | None], None]) -> tuple[int, list[str]]:
    """Run the script in its folder; return its exit code and what it said of results. The file LOG has all that it printed.

    ``tell`` gets the stage that has begun, and their number.
    """
    said: list[str] = []
    command = [program, "-mode", "batch", "-nojournal", "-source", script(ooc)]
    with (folder / LOG).open("w") as log:
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            )
        except OSError as error:
            raise DeviceError(f"vivado cannot be started: {error}") from error
        assert process.stdout is not None
        with process:
            try:
                for line in process.stdout:
                    log.write(line)
                    if line.startswith("chai: "):
                        text = line.removeprefix("chai: ").rstrip()
                        stage = _STAGE.match(text)
                        if stage:
                            tell(int(stage[1]) - 1, int(stage[2]))
                        else:
                            said.append(text)
            except BaseException:  # Ctrl-C, too
                process.kill()
                raise
    return process.returncode, said
