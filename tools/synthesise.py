"""Count what an accelerator takes of its part, and how deep its paths are: ``python tools/synthesise.py [OVERLAY] [--write]``.

yosys (``pip install amaranth pyosys``) synthesises the accelerator: minutes for one lane, an hour for the largest. Nothing is
placed or routed: times of paths, of the 7-series only, are estimates. ``--part`` looks at an engine by itself, ``--parts`` counts
what parts of it take, ``--netlist`` keeps the netlist in a file. ``--write`` puts the tables into docs/rtl.md, which has marks
for those of each overlay.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from timing import report
from timing.netlist import Netlist
from timing.summary import Summary

from chai import overlay as overlays
from chai.devices.rtlsim.simulation import rtlil
from chai.overlay import Overlay

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "rtl.md"
BEGIN, END = "<!-- synthesis of {} -->\n", "<!-- end of synthesis -->\n"
BEGIN_PATHS, END_PATHS = "<!-- paths of {} -->\n", "<!-- end of paths -->\n"
Module = dict[str, Any]  # of yosys' JSON
TIMED = "zynq7000"  # the family whose delays are known
SCRIPT = """
from pyosys import libyosys as ys
design = ys.Design()
ys.run_pass("read_rtlil top.il", design)
ys.run_pass("scratchpad -copy abc9.script.{flow} abc9.script", design)
ys.run_pass("scratchpad -set synth_xilinx.abc9.W {wire}", design)
ys.run_pass("setattr -mod -set keep_hierarchy 1 {apart}", design)
synth = "synth_xilinx -family {target} -flatten -noiopad -abc9 -top top -run"
for command in ["{{synth}} begin:coarse", *{packing}, *{rest}]:
    ys.run_pass(command.format(synth=synth), design)
ys.run_pass("setattr -mod -unset keep_hierarchy {apart}", design)
ys.run_pass("flatten; clean", design)
ys.run_pass("select top; write_json -selected netlist.json", design)
"""
FLOW = "flow3"  # of ABC: more rounds than by default, for fewer levels and fewer look-up tables
WIRE = 5000  # ps of a net for ABC: it counts tables in a row. With yosys' 300, several small ones seem as good as a large one
# parts that are mapped each by itself: ABC lets all paths of what it maps together be as slow as the slowest one, and these
# have some that are needed once a Task, or longer ones than those around them
APART = "*.planner *.control *.window *.constants *.loader_* *.lane_* *.writer *_reader *_writer"
FAMILIES = {"zynq7000": "xc7", "zynqmp": "xcup"}
# yosys has no rules by which registers and adders become those of a DSP48E2. A DSP48E1 has them too: meanwhile each is called one
PACKING = {
    "zynq7000": [],
    "zynqmp": ["chtype -set DSP48E1 t:DSP48E2", "xilinx_dsp -family xc7", "chtype -set DSP48E2 t:DSP48E1"],
}
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


WHOLE = "whole accelerator"
PARTS: Mapping[str, Callable[[Overlay], Any]] = {
    "window engine": window,
    "array engine": array,
    WHOLE: whole,
}


def netlist(text: str, family: str, options: str = "", whole: bool = True) -> Module:
    """Return the module that RTLIL becomes, as yosys writes JSON; ``options`` are more of synth_xilinx.

    If not ``whole``, it is what there is when DSPs are chosen, after seconds.
    """
    commands = {"packing": PACKING[family], "rest": ["{synth} coarse:"] if whole else []}
    script = SCRIPT.format(target=FAMILIES[family] + options, flow=FLOW, wire=WIRE, apart=APART, **commands)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.il").write_text(text)
        subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        module: Module = json.loads(Path(folder, "netlist.json").read_text())["modules"]["top"]
    return module


def ultra_rams(overlay: Overlay) -> str:
    """Return the option by which synth_xilinx uses UltraRAMs, if the part has some."""
    return " -uram" if overlay.resources.ultra_ram else ""


def synthesised(overlay: Overlay, part: str) -> Module:
    """Return the netlist of an engine or of the accelerator."""
    return netlist(rtlil(PARTS[part](overlay)), overlay.family, ultra_rams(overlay))


def cells(module: Module) -> dict[str, int]:
    """Return the number of cells of each type in a netlist."""
    return Counter(cell["type"] for cell in module["cells"].values())


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


def by_part(netlist: Netlist, depth: int) -> dict[str, dict[str, float]]:
    """Return the resources of parts and of their parts, to some depth, most LUTs first; numbered ones count as one."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for cell, name in netlist.places():
        parts = name.split(".")[:-1][:depth] or ["(own)"]
        counts[re.sub(r"_\d+", "_*", re.sub(r"\$\d+", "", ".".join(parts)))][cell.kind] += 1
    return dict(sorted(((part, resources(count)) for part, count in counts.items()), key=lambda row: -row[1]["LUT"]))


def available(overlay: Overlay) -> dict[str, float]:
    """Return the same of the manifest's part."""
    part = overlay.resources
    luts, registers = SIZES[overlay.part]
    return {"DSP": part.dsp, "LUT": luts, "FF": registers, "RAMB36": part.block_ram, "URAM288": part.ultra_ram}


def counted(module: Module, overlay: Overlay) -> dict[str, dict[str, float]]:
    """Return the resources of the engines in a netlist of the accelerator, of all of it, and of the manifest's part."""
    parts = by_part(Netlist(module), 1)
    engines = {name: parts[name.removesuffix(" engine")] for name in PARTS if name != WHOLE}
    return {**engines, WHOLE: resources(cells(module)), overlay.part: available(overlay)}


def table(counts: Mapping[str, Mapping[str, float]], name: str) -> str:
    """Return resources of an overlay in Markdown."""
    columns = list(next(iter(counts.values())))
    head = f"| {name} | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns) + "\n"
    return head + "".join(row(part, count) for part, count in counts.items())


def shares(counts: Mapping[str, Mapping[str, float]]) -> str:
    """Return the last line of the table: how much of the manifest's part, the last of ``counts``, the accelerator takes."""
    *_, used, has = counts.values()
    percent = (f"{used[name] / has[name]:.1%}" if has[name] else "-" for name in used)
    return f"| in use | {' | '.join(percent)} |\n"


def row(name: str, counts: Mapping[str, float]) -> str:
    """Return a line of the table."""
    return f"| {name} | " + " | ".join(f"{count:,g}" for count in counts.values()) + " |\n"


def written(page: str, overlay: Overlay, lines: str, begin: str = BEGIN, end: str = END) -> str:
    """Return a page with new lines between its marks."""
    before, rest = page.split(begin.format(overlay.name), 1)
    _, after = rest.split(end, 1)
    target = FAMILIES[overlay.family] + ultra_rams(overlay)
    mapping = f"`synth_xilinx -family {target} -abc9`, `{FLOW}` of ABC with nets of {WIRE:,} ps"
    command = f"{pyosys_version()}, {mapping}."
    return f"{before}{begin.format(overlay.name)}\n{lines}\n{command}\n\n{end}{after}"


def pyosys_version() -> str:
    """Return the version that counts: another one counts a little differently."""
    return f"yosys {version('pyosys')}"


def stored(file: Path, overlay: Overlay, part: str) -> Module:
    """Return the netlist of a file; without that, synthesise the part and write the file."""
    if not file.exists():
        file.write_text(json.dumps(synthesised(overlay, part)))
    module: Module = json.loads(file.read_text())
    return module


def main() -> int:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overlay", nargs="?", default=overlays.default, help="name or manifest of an overlay")
    parser.add_argument("--part", choices=PARTS, help="analyse the paths of this part alone")
    parser.add_argument(
        "--netlist", type=Path, metavar="FILE", help="its netlist: read if the file exists, else written"
    )
    parser.add_argument(
        "--parts", type=int, metavar="DEPTH", help="count by its parts instead, and by theirs to this depth"
    )
    parser.add_argument("--paths", type=int, default=25, metavar="N", help="slowest paths to print (default: 25)")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/rtl.md")
    options = parser.parse_args()
    overlay, part = overlays.load(options.overlay), options.part or WHOLE
    if options.write and part != WHOLE:
        parser.error("--write: the page's tables are those of the whole accelerator, without --part")
    timed = overlay.family == TIMED
    file = options.netlist
    module = stored(file, overlay, part) if file else synthesised(overlay, part)
    if options.parts:
        print(table(by_part(Netlist(module), options.parts), overlay.name), end="")
        return 0
    counts, summary = counted(module, overlay) if part == WHOLE else {}, Summary(Netlist(module))
    print(
        table(counts, overlay.name) + shares(counts) if counts else "",
        *report.lines(summary, options.paths, timed),
        sep="\n",
    )
    if options.write:
        page = written(PAGE.read_text(), overlay, table(counts, overlay.name) + shares(counts), BEGIN, END)
        PAGE.write_text(written(page, overlay, report.table(summary, overlay.name, timed), BEGIN_PATHS, END_PATHS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
