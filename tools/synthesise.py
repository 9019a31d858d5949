"""Count what an accelerator takes of its part: ``python tools/synthesise.py [OVERLAY] [--write]``.

yosys (``pip install amaranth pyosys``) synthesises each engine and the whole accelerator, some minutes each. Nothing is
placed or routed, so this says nothing of a clock. ``--write`` puts the table into docs/rtl.md, if that has one of the overlay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from chai import overlay as overlays
from chai.devices.rtlsim.building import rtlil
from chai.overlay import Overlay

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rtl.md"
BEGIN, END = "<!-- synthesis of {} -->\n", "<!-- end of synthesis -->\n"
SCRIPT = """
from pyosys import libyosys as ys
design = ys.Design()
ys.run_pass("read_rtlil top.il", design)
ys.run_pass("synth_xilinx -family {family} -flatten -noiopad -top top {steps}", design)
ys.run_pass("tee -q -o cells.json stat -json -tech xilinx", design)
"""
FAMILIES = {"zynq7000": "xc7", "zynqmp": "xcup -uram"}
# LUTs and registers (DS190, DS891, DS987); DSPs and RAMs are in the manifest
SIZES = {
    "XC7Z020": (53_200, 106_400),
    "XCZU3EG": (70_560, 141_120),
    "XCK26": (117_120, 234_240),
    "XCZU7EV": (230_400, 460_800),
    "XCZU9EG": (274_080, 548_160),
}
RAM_LUTS = {
    "RAM64X1S": 1,
    "RAM32M16": 8,
    "RAM64M8": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1D": 4,
}
SHIFTS = {"SRL16E": 1, "SRLC32E": 1}


def window(overlay: Overlay) -> Any:
    """Return the window engine."""
    from chai.hw_overlays.rtl.window.engine import WindowEngine  # needs amaranth

    return WindowEngine(overlay)


def array(overlay: Overlay) -> Any:
    """Return the array engine."""
    from chai.hw_overlays.rtl.array.engine import ArrayEngine  # needs amaranth

    return ArrayEngine(overlay)


def whole(overlay: Overlay) -> Any:
    """Return the whole accelerator."""
    from chai.hw_overlays.rtl.generate import accelerator  # needs amaranth

    return accelerator(overlay)


PARTS: Mapping[str, Callable[[Overlay], Any]] = {
    "window engine": window,
    "array engine": array,
    "whole accelerator": whole,
}


TO_DSPS = "-run begin:coarse"


def cells(text: str, family: str, steps: str = "") -> dict[str, int]:
    """Return the number of cells of each type that RTLIL becomes; ``TO_DSPS`` ends when DSPs are chosen, in seconds."""
    script = SCRIPT.format(family=FAMILIES[family], steps=steps)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.il").write_text(text)
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        counts = json.loads(Path(folder, "cells.json").read_text())["design"]["num_cells_by_type"]
    return {name: int(count) for name, count in counts.items()}


def resources(counts: Mapping[str, int]) -> dict[str, float]:
    """Return DSPs, LUTs (as logic, memory and shift registers), registers, block RAMs in units of RAMB36, and UltraRAMs."""

    def of(*names: str) -> int:
        return sum(counts.get(name, 0) for name in names)

    luts = sum(count for name, count in counts.items() if name.startswith("LUT"))
    luts += sum(counts.get(name, 0) * size for name, size in {**RAM_LUTS, **SHIFTS}.items())
    return {
        "DSP": of("DSP48E1", "DSP48E2"),
        "LUT": luts,
        "FF": sum(count for name, count in counts.items() if name.startswith("FD")),
        "RAMB36": of("RAMB36E1", "RAMB36E2") + of("RAMB18E1", "RAMB18E2") / 2,
        "URAM288": of("URAM288"),
    }


def available(overlay: Overlay) -> dict[str, float]:
    """Return the same of the manifest's part."""
    part = overlay.resources
    luts, registers = SIZES[overlay.part]
    return {"DSP": part.dsp, "LUT": luts, "FF": registers, "RAMB36": part.block_ram, "URAM288": part.ultra_ram}


def counted(overlay: Overlay) -> Iterator[tuple[str, Mapping[str, float]]]:
    """Yield the names of parts and what they take, each when it is synthesised, and the FPGA and what it has."""
    for name, part in PARTS.items():
        yield name, resources(cells(rtlil(part(overlay)), overlay.family))
    yield overlay.part, available(overlay)


def table(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Return what ``counted`` yields in Markdown."""
    columns = list(next(iter(counts.values())))
    head = "| | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns) + "\n"
    return head + "".join(row(name, count) for name, count in counts.items())


def row(name: str, counts: Mapping[str, float]) -> str:
    """Return a line of the table."""
    return f"| {name} | " + " | ".join(f"{count:,g}" for count in counts.values()) + " |\n"


def written(page: str, overlay: Overlay, lines: str) -> str:
    """Return a page with new lines between its marks."""
    begin = BEGIN.format(overlay.name)
    before, rest = page.split(begin, 1)
    _, after = rest.split(END, 1)
    command = f"{pyosys_version()}, `synth_xilinx -family {FAMILIES[overlay.family]}`."
    return f"{before}{begin}\n{lines}\n{command}\n\n{END}{after}"


def pyosys_version() -> str:
    """Return the version that counts: another one counts a little differently."""
    return f"yosys {version('pyosys')}"


def main() -> int:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overlay", nargs="?", default=overlays.default, help="name or manifest of an overlay")
    parser.add_argument("--write", action="store_true", help="write the table into docs/rtl.md")
    options = parser.parse_args()
    counts, overlay = {}, overlays.load(options.overlay)
    for name, counts[name] in counted(overlay):
        print(row(name, counts[name]), end="", flush=True)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), overlay, table(counts)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
