"""The folder from which Vivado builds a bitstream, and the run of Vivado on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import overlay as overlays
from ..errors import DeviceError, UsageError
from ..overlay import Overlay
from ..overlay.sections import ARRAY, BoardModel
from ..util.paths import shipped
from ..util.suggest import did_you_mean
from .core import core
from .wrapper import PROTOCOLS, module, wrapper

SCRIPTS = ("build.tcl", "common.tcl", "boards.tcl", "package.tcl", "design.tcl", "implement.tcl", "ooc.tcl")
# MHz of the I/O PLL, from which the scripts take the clock: 1000 MHz is the boot files' usual value on a Zynq-7000, 1500 on
# an UltraScale+. The driver reads the PLL of the board, and never sets a clock above the one that was asked for.
PLL_MHZ = {"zynq7000": 1000, "zynqmp": 1500}
ROUNDED = 0.06  # MHz: 83.3 means 83.333
SLOWEST = 10
LOG = "vivado.out"
_STAGE = re.compile(r"(\d+)/(\d+) ")


def target(name: str) -> tuple[Overlay, BoardModel]:
    """Return an overlay and one of its boards: by the overlay's name or manifest (its first board), or by a board's name.

    Raises DeviceError for an unknown name, or an overlay whose RTL is not chai's own.
    """
    own = overlays.names(ARRAY)
    boards = {board.name.lower(): (overlay, board) for overlay in map(overlays.load, own) for board in overlay.boards}
    if name.lower() in boards and name not in own:
        return boards[name.lower()]
    if name in overlays.names() or "/" in name or name.endswith(".json"):
        overlay = overlays.load(name)
        if overlay.own is not None or overlay.emulated:
            reason = "is no design of chai's" if overlay.own is not None else "exists on the emulator alone"
            raise DeviceError(f"overlay {name} {reason}", hint=f"chai overlay build {overlays.default}")
        return overlay, boards.get(name, (overlay, overlay.boards[0]))[1]
    hint = did_you_mean(name.lower(), sorted({*own, *boards}), listed="overlays and boards")
    raise DeviceError(f"there is no overlay or board {name!r}", hint=hint)


def rate(family: str, mhz: float) -> float:
    """Return the PLL's rate that a frequency means. Raises UsageError with its neighbours if there is none."""
    pll = PLL_MHZ[family]
    rates = [pll / divider for divider in range(2, pll // SLOWEST + 1)]
    nearest = min(rates, key=lambda each: abs(each - mhz))
    if abs(nearest - mhz) <= ROUNDED:
        return nearest
    faster = [each for each in rates if each > mhz][-1:]
    slower = [each for each in rates if each < mhz][:1]
    near = " or ".join(f"--clock {each:.1f}" for each in slower + faster)
    raise UsageError(f"the PLL has no {mhz:g} MHz: it divides {pll} MHz by a whole number", hint=near)


@dataclass(frozen=True)
class Project:
    """An overlay to build for one of its boards, with a clock of ``mhz``."""

    overlay: Overlay
    board: BoardModel
    mhz: float
    jobs: int = 4

    @classmethod
    def of(cls, name: str, clock: float | None = None) -> Project:
        """Return the project of an overlay or a board. Raises UsageError for a clock that the PLL does not have.

        Raises DeviceError for a board whose file is not named.
        """
        overlay, board = target(name)
        if not board.board_file:
            raise DeviceError(
                f"overlay {overlay.name} does not say which board file sets the processor of {board.name}",
                hint='give its board in overlay.json a "board_file", such as "pynq-z2" of tul.com.tw:pynq-z2:part0:1.0',
            )
        mhz = rate(overlay.family, overlay.clock_mhz if clock is None else clock)
        return cls(overlay, board, mhz, os.cpu_count() or 1)

    @property
    def sources(self) -> tuple[str, str]:
        """Return the names of the wrapper and of the core below ``rtl/``."""
        name = module(self.overlay)
        return f"{name}.v", f"{name}_core.v"

    def settings(self) -> str:
        """Return what the scripts have to know, as Tcl."""
        overlay, family = self.overlay, self.overlay.family
        values = {
            "overlay": overlay.name,
            "vlnv": overlay.vlnv,
            "part": self.board.part,
            "board_file": self.board.board_file,
            "family": family,
            "mhz": f"{self.mhz:.6f}",
            "pll_mhz": PLL_MHZ[family],
            "protocol": PROTOCOLS[family],
            "address_bits": overlay.address_bits,
            "data_bits": 8 * overlay.ports.bytes,
            "registers": overlay.registers.window,
            "jobs": self.jobs,
        }
        head = f"# {self.board.name}, overlay {overlay.name}, build {overlay.build:08x}\n"
        return head + "".join(f"set {name} {{{value}}}\n" for name, value in values.items())

    def write(self, folder: Path) -> None:
        """Write everything but the core, which takes longer, into a folder."""
        (folder / "rtl").mkdir(parents=True, exist_ok=True)
        for script in SCRIPTS:
            shutil.copyfile(shipped("hw_overlays", "vivado", script), folder / script)
        (folder / "settings.tcl").write_text(self.settings())
        (folder / "ooc.xdc").write_text(f"create_clock -period {1000 / self.mhz:.3f} -name aclk [get_ports aclk]\n")
        (folder / "rtl" / self.sources[0]).write_text(wrapper(self.overlay))

    def write_core(self, folder: Path) -> None:
        """Write the core's Verilog. Raises DeviceError if a tool is missing."""
        name = self.sources[1].removesuffix(".v")
        (folder / "rtl" / self.sources[1]).write_text(core(self.overlay, name))


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
    """Run the script in its folder; return its exit code and lines with results. The file LOG has all that it printed.

    ``tell`` gets the stage that has begun, and their number.
    """
    results: list[str] = []
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
                            results.append(text)
            except BaseException:  # Ctrl-C, too
                process.kill()
                raise
    return process.returncode, results
