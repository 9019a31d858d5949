"""Public scripts that are known to build go through the rules of the stand-in, as far as they use what it knows.

``CHAI_TEST_SCRIPTS`` is a folder with checkouts, as in ``test_sources.py``. Scripts of analogdevicesinc/hdl ask Vivado for
the classes of objects, which the stand-in does not have: they are looked up there alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .vivado import known
from .vivado.public import PublicScript, scripts_version

FOLDER = os.environ.get("CHAI_TEST_SCRIPTS", "")
public = pytest.mark.skipif(not FOLDER, reason="CHAI_TEST_SCRIPTS names no folder with the public repositories")
FAMILIES = {"zynq-7000": "xc7z020clg484-1", "zynq-ultrascale+": "xczu3eg-sbva484-1-e"}
VTA_SETTINGS = {
    "TARGET": "a", "FPGA_FREQ": 100, "FPGA_BOARD": "None", "FPGA_BOARD_REV": "None", "AXI_CACHE_BITS": 1111,
    "AXI_PROT_BITS": "000", "IP_REG_MAP_RANGE": "0x1000", "NUM_WGT_MEM_URAM": 0,
    **{f"{memory}_MEM_{what}": number for memory in ("INP", "WGT", "OUT")
       for what, number in (("BANKS", 1), ("WIDTH", 128), ("DEPTH", 2048))},
    **{f"{part}_BASE_ADDR": f"0x43C0{n}000" for n, part in enumerate(("FETCH", "LOAD", "COMPUTE", "STORE"))},
}  # fmt: skip


@public
@pytest.mark.parametrize(
    ("file", "checks", "cells"),
    [(known.Z2, 500, 44), (known.Z2_LOGIC, 400, 37), (known.Z2_BOOT, 30, 6), (known.ZCU104, 250, 21)],
    ids=lambda value: value.split("/")[-1] if isinstance(value, str) else "",
)
def test_generated_scripts_of_pynq(file: str, checks: int, cells: int) -> None:
    script = PublicScript()
    script.run(Path(FOLDER, file), scripts_version(Path(FOLDER, file)))
    assert script.refused == []
    assert script.checks.total() >= checks and len(script.design.cells) >= cells


@public
@pytest.mark.parametrize("family", FAMILIES)
def test_vta(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it makes folders
    values = {**VTA_SETTINGS, "FPGA_FAMILY": family, "FPGA_DEVICE": FAMILIES[family]}
    (tmp_path / "settings.tcl").write_text("".join(f"set {name} {value}\n" for name, value in values.items()))
    script = PublicScript()
    script.run(Path(FOLDER, known.VTA), "2020.1", f"set argv [list {tmp_path} settings.tcl]")
    assert script.refused == []
    assert {cell.vlnv.split(":")[2] for cell in script.design.cells.values()} == {
        "axi_interconnect", "proc_sys_reset", "processing_system7" if family == "zynq-7000" else "zynq_ultra_ps_e",
    }  # fmt: skip
    assert script.checks.total() >= 40


RIGHT = """
set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:processing_system7:5.5 ps]
set_property -dict [list CONFIG.PCW_USE_S_AXI_HP0 {1} CONFIG.PCW_UNHEARD_OF {7}] $ps
set old [current_bd_instance .]
current_bd_instance [create_bd_cell -type hier inner]
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset:5.0 reset
create_bd_cell -type ip -vlnv xilinx.com:ip:unheard_of:1.0 other
connect_bd_net -net a [get_bd_pins reset/slowest_sync_clk] [get_bd_pins other/clk]
current_bd_instance $old
create_bd_intf_port -mode Master -vlnv xilinx.com:interface:ddrx_rtl:1.0 DDR
connect_bd_net -net c [get_bd_pins ps/FCLK_CLK0] [get_bd_pins inner/reset/slowest_sync_clk] [get_bd_pins inner/clk]
connect_bd_intf_net -intf_net d [get_bd_intf_pins ps/DDR] [get_bd_intf_ports DDR]
assign_bd_address -offset 0 -range 0x40000000 -target_address_space [get_bd_addr_spaces inner/other/Data] \\
  [get_bd_addr_segs ps/S_AXI_HP0/HP0_DDR_LOWOCM]
unheard_of_command
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", ""),
        ("S_AXI_HP0 {1}", "S_AXI_HP0 {2}", "one of"),
        ("ps/FCLK_CLK0", "ps/FCLK_RESET0_N", "is rst"),
        ("ps/FCLK_CLK0", "ps/S_AXI_HP1_ACLK", "has no pin"),
        ("slowest_sync_clk] [get_bd_pins inner/clk]", "peripheral_aresetn]", "all drive one net"),
        ("interface:ddrx_rtl", "interface:iic_rtl", "the port is"),
        ("-offset 0 ", "-offset 0x1000 ", "aligned"),
        ("-range 0x40000000", "-range 0x80000000", "has 0x40000000 bytes"),
    ],
)
def test_contradictions_are_seen(old: str, new: str, says: str, tmp_path: Path) -> None:
    assert RIGHT.count(old) == 1 or not old
    (tmp_path / "design.tcl").write_text(RIGHT.replace(old, new))
    script = PublicScript()
    script.run(tmp_path / "design.tcl", "2024.1")
    assert script.checks.total() >= 5
    assert [says in refusal for refusal in script.refused] == [True] * bool(says)
