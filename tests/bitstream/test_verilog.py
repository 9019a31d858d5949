"""The Verilog that is written: names, a clean wrapper, and (slow) that it computes what the emulator does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")
pytest.importorskip("pyosys", reason="the extra rtl is not installed")

import chai
from chai import overlay as overlays
from chai.bitstream.core import plain, readable
from chai.bitstream.project import Project
from chai.bitstream.wrapper import wrapper
from chai.devices.rtlsim import program, verilator
from chai.devices.rtlsim.simulation import Simulation
from chai.devices.rtlsim.tools import missing, yosys
from chai.env import env
from chai.overlay import Overlay
from chai.overlay.sections import PortSize
from tests.rtl.manifests import small

# in Verilog of another tool: wires that nothing reads, registers with a first value, operands that are widened
OFF = ("UNUSEDSIGNAL", "PROCASSINIT", "WIDTHEXPAND")
PORTS = """
import sys, warnings
warnings.simplefilter("ignore")
from chai import overlay
from chai.hw_overlays.rtl.generate import accelerator
made = accelerator(overlay.load(sys.argv[1]))
for path, member, value in made.signature.flatten(made):
    print("__".join(map(str, path)), len(value.as_value() if hasattr(value, "as_value") else value), member.flow.name)
"""


def core_ports(overlay: Overlay) -> dict[str, tuple[int, bool]]:
    """The core's ports by the source of the RTL: bits, and whether they are outputs. In a process, as nothing is elaborated."""
    command = [sys.executable, "-W", "ignore", "-c", PORTS, str(overlay.path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ports = {name: (int(bits), flow == "Out") for name, bits, flow in map(str.split, lines)}
    return {name: about for name, about in ports.items() if not re.fullmatch(r"\w+_(finished|mac|stall)", name)}


def black_box(overlay: Overlay) -> str:
    """A core without content, with the ports that the RTL has."""
    ports = {"clk": (1, False), "rst": (1, False), **core_ports(overlay)}
    lines = [f"  {'output' if out else 'input'} wire [{bits - 1}:0] {name}" for name, (bits, out) in ports.items()]
    return (
        "/* verilator lint_off UNUSEDSIGNAL */\n/* verilator lint_off UNDRIVEN */\n/* verilator lint_off SYMRSVDWORD */\n"
        + ("(* blackbox *) module chai_array_core (\n" + ",\n".join(lines) + "\n);\nendmodule\n")
    )


def lint(folder: Path, *options: str) -> str:
    """What Verilator says of the folder's module, everything switched on."""
    tool = verilator.found()
    if tool is None:
        pytest.skip("verilator is not installed")
    command = [
        str(tool[0]),
        "--lint-only",
        "-Wall",
        *options,
        "--top-module",
        "chai_array",
        "chai_array.v",
        "chai_array_core.v",
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "VERILATOR_ROOT": str(tool[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("- ")]  # how long it took
    return "\n".join(said) + f"ended with {done.returncode}" * bool(done.returncode)


@pytest.mark.parametrize("name", ["pynq-z2", "kv260", "wide"])  # AXI3 and AXI4, and that of 128 bits
def test_the_wrapper_is_clean(name: str, tmp_path: Path) -> None:
    """Widths and directions of the core's ports are those of the RTL's own signature."""
    overlay = small(tmp_path, 16, 16, 1, board="kv260", wide=True) if name == "wide" else overlays.load(name)
    (tmp_path / "chai_array.v").write_text(wrapper(overlay))
    (tmp_path / "chai_array_core.v").write_text(black_box(overlay))
    assert lint(tmp_path, "-Wno-fatal") == ""
    wide = f"[{8 * overlay.ports.bytes - 1}:0] m2_rdata"
    (tmp_path / "chai_array.v").write_text(wrapper(overlay).replace(wide, "[31:0] m2_rdata"))
    assert "WIDTH" in lint(tmp_path)


def test_protocols_are_those_of_the_processors_ports() -> None:
    z2, kv260 = wrapper(overlays.load("pynq-z2")), wrapper(overlays.load("kv260"))
    narrow = wrapper(replace(overlays.load("kv260"), ports=PortSize(8)))
    for text, length, lock, address, data, written in (
        (z2, "[3:0]", "[1:0] ", "[31:0]", "[63:0]", ["m0", "m3"]),
        (narrow, "[7:0]", "", "[39:0]", "[63:0]", ["m0", "m3"]),
        (kv260, "[7:0]", "", "[39:0]", "[127:0]", ["m0", "m2", "m3"]),
    ):
        for port in ("m0", "m1", "m2", "m3"):
            assert f"output wire {length} {port}_arlen" in text and f"output wire {lock}{port}_arlock" in text
            assert f"output wire {address} {port}_araddr" in text and f"input wire {data} {port}_rdata" in text
        assert re.findall(r"output wire \[\d+:0\] (m\d)_awaddr", text) == written


def test_names_can_be_read_and_differ() -> None:
    names = readable(["array.row", "array.$signal$41", "$flatten\\a.b", "array.row$3", "3"], {"array_row"})
    assert names["array.$signal$41"] == "array_signal_41"
    assert names["array.row"] == "array_row_2"  # the plain one is taken
    assert names["array.row$3"] == "array_row_3"
    assert len({*names.values(), "array_row"}) == 6
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in names.values())


def test_verilog_becomes_plain() -> None:
    text = """/* by yosys */
(* src = "x" *)
(* ram_style = "ultra" *)
reg [7:0] \\a.b [3:0];
assign x = ! \\a.b ;
assign y = q != ! z;
"""
    assert plain(text) == '(* ram_style = "ultra" *)\nreg [7:0] a_b [3:0];\nassign x = ~|a_b ;\nassign y = q != ~|z;\n'


# -- slow: the whole core


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pynq-z2", "kv260"])  # one lane, and four with UltraRAM
def test_the_core_is_clean(name: str, tmp_path: Path) -> None:
    project, folder = Project.of(name), tmp_path / "rtl"
    project.write(tmp_path)
    project.write_core(tmp_path)
    assert lint(folder, *(f"-Wno-{kind}" for kind in OFF)) == ""
    text = (folder / "chai_array_core.v").read_text()
    assert ('(* ram_style = "ultra" *)' in text) == (project.overlay.resources.ultra_ram > 0)
    assert "\\" not in text and "$signal" not in text
    assert set(re.findall(r"\$\w+", text)) <= {"$signed", "$unsigned"}
    assert (
        re.search(r"\breg \[\d+:0\] array_loader_0_", text)
        and text.count("\nmodule ") + text.startswith("module ") == 1
    )


def as_top(overlay: Overlay, folder: Path) -> str:
    """RTLIL of the written Verilog, in a frame with the names that the simulation's harness knows."""
    project = Project(overlay, overlay.boards[0], 100)
    project.write(folder)
    project.write_core(folder)
    ports = core_ports(overlay)
    lines, links = ["input clk", "input rst"], [".aclk(clk)", ".aresetn(!rst)", ".interrupt(interrupt)"]
    known = set(re.findall(r"wire (?:\[\d+:0\] )?(\w+)", wrapper(overlay).split(");")[0]))
    for name, (bits, out) in ports.items():
        lines.append(f"{'output' if out else 'input'} [{bits - 1}:0] {name}")
        outer = re.sub(r"^bus__", "s_axi_", re.sub(r"_(read|write)__", "_", name))
        if outer in known and outer != "interrupt":
            links.append(f".{outer}({name})")
    fixed = [f"assign {name} = 0;" for name in ports if re.search(r"__(arid|awid|wid)$", name)]
    body = [*fixed, f"chai_array inner ({', '.join(links)});", "endmodule"]
    frame = "\n".join([f"module top ({', '.join(lines)});", *body, ""])
    (folder / "rtl" / "top.v").write_text(frame)
    yosys(folder / "rtl", "read_verilog top.v chai_array.v chai_array_core.v", "hierarchy -top top", "proc", "flatten",
          "opt_clean", "write_rtlil top.il")  # fmt: skip
    return (folder / "rtl" / "top.il").read_text()


def out_of_reset(*arguments: Any, **options: Any) -> Simulation:
    """A simulation a cycle after its reset: before, no master of AXI may begin, and the wrapper has a register for it."""
    simulation = Simulation(*arguments, **options)
    simulation.tick(2)
    return simulation


@pytest.mark.slow
def test_the_written_verilog_computes_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Wrapper, names and all, against the emulator."""
    if missing():
        pytest.skip(missing())
    monkeypatch.setenv("CHAI_CACHE", str(request.config.cache.mkdir("chai-rtl")))
    env.cache_clear()
    overlay = small(tmp_path)
    text = as_top(overlay, tmp_path / "build")
    monkeypatch.setattr(program, "generated", lambda _: text)
    monkeypatch.setattr(program, "Simulation", out_of_reset)
    program.accelerator.cache_clear()
    images = np.random.default_rng(8).uniform(0, 16, (2, 1, 8, 8)).astype(np.float32)
    answers: list[Any] = []
    for device in ("emulator", "rtlsim"):
        net = chai.Net("digits", device=device, overlay=overlay.path, calibrate=images, batch=2)
        answers.append(SimpleNamespace(found=net.forward(images)))
        net.close()
    program.accelerator.cache_clear()
    assert answers[0].found.keys() == answers[1].found.keys()
    assert all(np.array_equal(answers[0].found[b], answers[1].found[b]) for b in answers[0].found)
    assert any(np.ptp(blob) > 0 for blob in answers[0].found.values())
