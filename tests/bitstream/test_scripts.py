"""The build scripts through a strict stand-in for Vivado: every board, both lines of versions, and 30 ways to be wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("tkinter", reason="this Python has no tkinter, whose Tcl runs the scripts")

import tkinter

from chai.bitstream.project import Project
from tests.bitstream.common import built, written

from .vivado.design import Refused
from .vivado.standin import BOARDS, Vivado

NAMES = ["pynq-z2", "pynq-z1", "zedboard", "ultra96", "ultra96-v2", "kv260", "zcu102", "zcu104"]
TUL = (*BOARDS, "tul.com.tw:pynq-z2:part0:1.0")


@pytest.mark.parametrize("version", ["2020.1", "2024.2"])
@pytest.mark.parametrize("name", NAMES)
def test_every_board_is_built(name: str, version: str, tmp_path: Path) -> None:
    project = Project.of(name)
    vivado = built(project, tmp_path, version=version, bit=b"the bitstream")
    design = vivado.design
    assert design is not None and design.valid
    assert vivado.part == project.board.part
    assert (tmp_path / f"{project.overlay.name}.bit").read_bytes() == b"the bitstream"
    assert project.overlay.vlnv in (tmp_path / f"{project.overlay.name}.hwh").read_text()
    ports = [design.link[f"accelerator/m{n}"] for n in range(4)]
    assert ports == [f"processor/S_AXI_HP{n}{'_FPD' * (project.overlay.family == 'zynqmp')}" for n in range(4)]
    assert vivado.said[0].startswith("chai: 1/6") and vivado.said[-1].endswith(".hwh are written")


def test_a_board_file_sets_the_processor(tmp_path: Path) -> None:
    vivado = built(Project.of("pynq-z2"), tmp_path, boards=TUL)
    assert vivado.design is not None and vivado.design.automated
    assert "PCW_UIPARAM_DDR_PARTNO" not in vivado.design.cells["processor"].values


def test_without_one_the_zynq_7000_is_set_by_the_scripts(tmp_path: Path) -> None:
    vivado = built(Project.of("pynq-z2"), tmp_path)
    assert vivado.design is not None and not vivado.design.automated
    processor = vivado.design.cells["processor"]
    assert (
        processor.value("PCW_UIPARAM_DDR_BUS_WIDTH") == "16 Bit"
    )  # half of the default: the board has one memory chip
    assert processor.value("PCW_CRYSTAL_PERIPHERAL_FREQMHZ") == "50"


def test_an_ultrascale_without_its_board_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(tkinter.TclError, match=r"no board file of kv260_som.*install it"):
        built(Project.of("kv260"), tmp_path, boards=TUL[-1:])


# what a timing report says: slack of setup and hold, and what the script has to answer
@pytest.mark.parametrize(
    ("name", "slack", "answer"),
    [
        ("pynq-z2", (-1.9, 0.05), r"100\.0 MHz is not met: build with --clock 83\.3"),
        ("pynq-z2", (-0.05, 0.05), r"build with --clock 90\.9"),
        ("pynq-z2", (-3.01, 0.05), r"build with --clock 71\.4"),  # 13.01 ns: 76.9 MHz are 13 ns
        ("kv260", (-0.5, 0.05), r"250\.0 MHz is not met: build with --clock 214\.3"),
        ("pynq-z2", (0.2, -0.01), r"hold is violated by 0\.010 ns"),
    ],
)
def test_a_clock_that_is_not_met_fails_with_the_fastest_that_would(
    name: str, slack: tuple[float, float], answer: str, tmp_path: Path
) -> None:
    project = Project.of(name)
    with pytest.raises(tkinter.TclError, match=answer):
        built(project, tmp_path, slack=slack)
    assert not (tmp_path / f"{project.overlay.name}.bit").exists()
    assert (tmp_path / "reports" / "timing.rpt").exists()
    named = re.search(r"--clock ([\d.]+)", answer.replace("\\", ""))
    if named:  # the clock that is named is one that can be asked for, and is slow enough
        again = Project.of(name, float(named[1]))
        assert 1000 / again.mhz >= 1000 / project.mhz - slack[0]


def test_another_clock_than_the_one_that_was_asked_for_fails(tmp_path: Path) -> None:
    with pytest.raises(tkinter.TclError, match=r"has a period of 11\.000 ns, expected 10\.000 ns"):
        built(Project.of("pynq-z2"), tmp_path, stretch=1.1)


def test_the_accelerator_alone(tmp_path: Path) -> None:
    project = Project.of("pynq-z2", 76.9)
    vivado = Vivado(slack=(2.4, -5))  # hold means nothing at its ports
    vivado.run(written(project, tmp_path) / "ooc.tcl")
    assert vivado.alone[-1] == "route_design"
    assert "chai: the fastest clock that would close is 90.9 MHz" in vivado.said  # 13.003 - 2.4 ns
    assert vivado.period == 13.0


MUTATIONS = [
    # file, what stands there, what is written instead, what the refusal says
    ("design", "set port S_AXI_HP$n", "set port S_AXI_ACP", "no interface pin S_AXI_ACP"),
    ("design", "set port S_AXI_HP$n", "set port S_AXI_HP[expr {$n + 1}]", "no interface pin S_AXI_HP4|does not reach"),
    ("design", "CONFIG.PCW_USE_S_AXI_HP3 {1}", "CONFIG.PCW_USE_S_AXI_HP3 {0}", "no pin S_AXI_HP3_ACLK"),
    ("design", "CONFIG.PCW_USE_S_AXI_HP2 {1}", "CONFIG.PCW_USE_S_AXI_HP2 {yes}", "is one of"),
    ("design", "PCW_S_AXI_HP1_DATA_WIDTH {64}", "PCW_S_AXI_HP1_DATA_WIDTH {32}", "width 64, .* has 32|width 32, .* has 64"),
    ("design", "PCW_USE_FABRIC_INTERRUPT", "PCW_USE_FABRIC_INTERRUPTS", "no property CONFIG.PCW_USE_FABRIC_INTERRUPTS"),
    ("design", "CONFIG.PCW_IRQ_F2P_INTR {1}", "CONFIG.PCW_IRQ_F2P_INTR {0}", "no pin IRQ_F2P"),
    ("design", "FREQMHZ $mhz", "FREQMHZ fast", "is a number"),
    ("design", "S_AXI_HP2_ACLK S_AXI_HP3_ACLK", "S_AXI_HP2_ACLK", "clock pin processor/S_AXI_HP3_ACLK is not connected"),
    ("design", "{accelerator/aclk ", "{", "clock pin accelerator/aclk is not connected"),
    ("design", "foreach pin {accelerator/aresetn ", "foreach pin {", "pin accelerator/aresetn is not connected"),
    ("design", "control/ACLK control/S00_ACLK", "control/S00_ACLK", "clock pin control/ACLK is not connected"),
    ("design", "reset_0/peripheral_aresetn", "reset_0/peripheral_reset", "no pin peripheral_reset"),
    ("design", "processor/$reset] [get_bd_pins reset_0/ext", "processor/$clock] [get_bd_pins reset_0/ext", "is clk, .* is rst"),
    ("design", "control/M01_AXI] [get_bd_intf_pins axi_intc_0", "control/M00_AXI] [get_bd_intf_pins axi_intc_0", "connected to"),
    ("design", "CONFIG.NUM_MI {2}", "CONFIG.NUM_MI {1}", "no interface pin M01_AXI"),
    ("design", "CONFIG.NUM_MI {2}", "CONFIG.NUM_MI {3}", "M02"),
    ("design", "$base + 0x10000", "$base + 0x0", "overlaps"),
    ("design", "$base + 0x10000", "$base + 0x10800", "no aligned power of two"),
    ("design", "-range $registers", "-range 0x3000", "no aligned power of two"),
    ("design", "-range $registers", "-range 0x10000", "has 0x1000 bytes"),
    ("design", "ddr_bytes(zynq7000) 0x20000000", "ddr_bytes(zynq7000) 0x80000000", "has 0x40000000 bytes"),
    ("design", "HP${n}_DDR_LOWOCM", "HP0_DDR_LOWOCM", "no address segment S_AXI_HP1/HP0_DDR_LOWOCM"),
    ("design", "  memory\n", "", "m0 is not connected"),
    ("design", "  interrupt\n", "", "pin processor/IRQ_F2P is not connected"),
    ("design", "connect_bd_net [get_bd_pins axi_intc_0/irq]", "connect_bd_pin [get_bd_pins axi_intc_0/irq]", "invalid command"),
    ("design", "accelerator/interrupt] [get_bd_pins to", "accelerator/aresetn] [get_bd_pins to", "one pin has to drive"),
    ("design", "[newest axi_intc]", "xilinx.com:ip:axi_intc:5.0", "has no IP xilinx.com:ip:axi_intc:5.0"),
    ("design", "[newest xlconcat]", "[newest ilconcat]", "no IP ilconcat"),
    ("design", "  validate_bd_design\n", "", "was not saved and validated"),
    ("design", "create_bd_cell -type ip -vlnv $vlnv", "create_bd_cell -type module -reference $vlnv", "no option -reference"),
    ("package", "set_property name $name $core", "set_property name accelerator $core", "has no IP chai:accelerator:chai_array"),
    ("package", "ipx::save_core $core", "", "not saved"),
    ("package", "parameter $interface PROTOCOL $protocol", "parameter $interface PROTOCOL AXI4", r"signals|has \d bits"),
    ("package", "s_axi:m0:m1:m2:m3", "s_axi:m0:m1:m2", "m3 has no clock"),
    ("package", "POLARITY ACTIVE_LOW", "POLARITY ACTIVE_HIGH", "not said to be active low"),
    ("package", "1 << $address_bits", "1 << 31", "no address space of its bits"),
    ("package", "aclk clock aresetn reset interrupt interrupt", "aclk clock aresetn reset", "there is no such interface"),
    ("package", "foreach name {m0 m1 m2 m3}", "foreach name {m0 m1 m2 m4}", "no interface m3"),
    ("implement", "-import -fileset sources_1 -top", "-fileset sources_1 -top", "imported as the top"),
    ("implement", "set_property top chai_wrapper [current_fileset]", "", "has no top"),
    ("implement", "-to_step write_bitstream", "-to_step route_design", "does not write a bitstream"),
    ("implement", "Flow_PerfOptimized_high", "Flow_PerfOptimised_high", "is one of"),
    ("implement", "  open_run impl_1\n", "", "no routed design is open"),
    ("implement", "*accelerator/aclk", "*accelerator/clk", "no clock that timing knows"),
    ("build", "update_ip_catalog", "update_catalog", "invalid command name"),
    ("build", "set_property ip_repo_paths [file join $work ip]", "set_property ip_repo_paths [file join $work ips]", "no IP in"),
    ("boards", "PCW_UIPARAM_DDR_BUS_WIDTH {16 Bit}", "PCW_UIPARAM_DDR_BUS_WIDTH {16 Bits}", "is one of"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "says"), MUTATIONS)
def test_a_wrong_script_is_refused(file: str, old: str, new: str, says: str, tmp_path: Path) -> None:
    folder = written(Project.of("pynq-z2"), tmp_path)
    script = folder / f"{file}.tcl"
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new, 1))
    with pytest.raises((Refused, tkinter.TclError), match=says):
        Vivado().run(folder / "build.tcl")
    assert not (folder / "pynq-z2.bit").exists()
