"""What the stand-in knows of Vivado, each with the public file that shows it; "" where none does (docs/build.md lists those).

``test_sources.py`` looks every entry up in its file, where the repositories are at hand.
"""

from __future__ import annotations

from typing import NamedTuple

FINN = "Xilinx/finn/src/finn/transformation/fpgadataflow/templates.py"
STITCH = "Xilinx/finn/src/finn/transformation/fpgadataflow/create_stitched_ip.py"
VTA = "apache/tvm-vta/hardware/xilinx/scripts/vivado.tcl"
Z2 = "Xilinx/PYNQ/boards/Pynq-Z2/base/base.tcl"
Z2_BUILD = "Xilinx/PYNQ/boards/Pynq-Z2/base/build_bitstream.tcl"
Z2_LOGIC = "Xilinx/PYNQ/boards/Pynq-Z2/logictools/logictools.tcl"
Z2_BOOT = "Xilinx/PYNQ/boards/Pynq-Z2/petalinux_bsp/hardware_project/pynqz2.tcl"
ZCU104 = "Xilinx/PYNQ/boards/ZCU104/base/base.tcl"
ADI = "analogdevicesinc/hdl/"
BOARD = f"{ADI}projects/scripts/adi_board.tcl"
PROJECT = f"{ADI}projects/scripts/adi_project_xilinx.tcl"
FIX = f"{ADI}projects/scripts/auto_timing_fix_xilinx.tcl"
PACKAGE = f"{ADI}library/scripts/adi_ip_xilinx.tcl"
HBM = f"{ADI}library/util_hbm/util_hbm_ip.tcl"
AD9361 = f"{ADI}library/axi_ad9361/axi_ad9361_ip.tcl"
DELAY = f"{ADI}library/axi_ad9361/axi_ad9361_delay.tcl"
DACFIFO = f"{ADI}library/xilinx/axi_dacfifo/axi_dacfifo_ip.tcl"
I2S = f"{ADI}library/axi_i2s_adi/axi_i2s_adi_constr.xdc"
DMAC = f"{ADI}library/axi_dmac/axi_dmac_ip.tcl"
PLUTO = f"{ADI}projects/pluto/system_bd.tcl"
ZED = f"{ADI}projects/common/zed/zed_system_bd.tcl"
ZCU102 = f"{ADI}projects/common/zcu102/zcu102_system_bd.tcl"
ADRD = f"{ADI}projects/adrd8012_01z/common/adrd8012_01z_bd.tcl"
CORUNDUM = f"{ADI}projects/adrv9009zu11eg/adrv2crr_fmc/system_bd_corundum.tcl"
CLOCKS = f"{ADI}projects/ad4080_fmc_evb/zed/system_constr.xdc"


class Command(NamedTuple):
    """A command: its file, options with a value, options without, and how many other arguments it takes."""

    file: str
    values: str = ""
    flags: str = ""
    least: int = 0
    most: int = 0


COMMANDS = {
    "create_project": Command(PROJECT, "-part", "-force -in_memory", 0, 2),
    "current_project": Command(PROJECT),
    "close_project": Command(PROJECT),
    "get_board_parts": Command(PROJECT),
    "set_property": Command(FINN, "-dict", "", 1, 3),
    "get_property": Command(PROJECT, "", "", 2, 2),
    "current_fileset": Command(PROJECT),
    "add_files": Command(PROJECT, "-fileset", "-norecurse", 1, 1),
    "update_compile_order": Command(VTA, "-fileset"),
    "update_ip_catalog": Command(PROJECT),
    "get_ipdefs": Command(BOARD, "-filter", "-all"),
    "get_files": Command(FINN, "", "", 1, 1),
    "make_wrapper": Command(FINN, "-files -fileset", "-import -top"),
    "get_runs": Command(PROJECT, "", "", 1, 1),
    "launch_runs": Command(VTA, "-to_step -jobs", "", 1, 1),
    "wait_on_run": Command(VTA, "", "", 1, 1),
    "open_run": Command(PROJECT, "", "", 1, 1),
    "report_timing_summary": Command(PROJECT, "-file"),
    "report_utilization": Command(PROJECT, "-file", "-hierarchical"),
    "check_timing": Command(PROJECT, "-override_defaults", "-no_header -return_string"),
    "get_timing_paths": Command(PROJECT, "", "-setup -hold"),
    "get_clocks": Command(I2S, "-of_objects"),
    "get_pins": Command(DELAY, "-filter", "-hierarchical"),
    "get_ports": Command(I2S, "", "", 1, 1),
    # the accelerator alone
    "read_verilog": Command(PROJECT, "", "", 1, 1),
    "read_xdc": Command(PROJECT, "", "", 1, 1),
    "create_clock": Command(CLOCKS, "-period -name", "", 1, 1),
    "synth_design": Command(PROJECT, "-mode -top -part"),
    "opt_design": Command(PROJECT),
    "place_design": Command(PROJECT),
    "phys_opt_design": Command(FIX),
    "route_design": Command(PROJECT),
    "write_checkpoint": Command(PROJECT, "", "-force", 1, 1),
    # packaging
    "ipx::package_project": Command(STITCH, "-root_dir -vendor -library -taxonomy", "-import_files"),
    "ipx::current_core": Command(PACKAGE),
    "ipx::remove_all_bus_interface": Command(PACKAGE, "", "", 1, 1),
    "ipx::get_memory_maps": Command(PACKAGE, "-of_objects", "", 1, 1),
    "ipx::remove_memory_map": Command(PACKAGE, "", "", 2, 2),
    "ipx::add_bus_interface": Command(PACKAGE, "", "", 2, 2),
    "ipx::get_bus_interfaces": Command(PACKAGE, "-of_objects", "", 1, 1),
    "ipx::get_ports": Command(PACKAGE, "-of_objects", "", 1, 1),
    "ipx::add_port_map": Command(PACKAGE, "", "", 2, 2),
    "ipx::infer_bus_interface": Command(PACKAGE, "", "", 3, 3),
    "ipx::add_bus_parameter": Command(PACKAGE, "", "", 2, 2),
    "ipx::get_bus_parameters": Command(DACFIFO, "-of_objects", "", 1, 1),
    "ipx::add_memory_map": Command(PACKAGE, "", "", 2, 2),
    "ipx::add_address_block": Command(PACKAGE, "", "", 2, 2),
    "ipx::get_address_blocks": Command(PACKAGE, "-of_objects", "", 1, 1),
    "ipx::add_address_space": Command(HBM, "", "", 2, 2),
    "ipx::get_address_spaces": Command(DACFIFO, "-of_objects", "", 1, 1),
    "ipx::create_xgui_files": Command(STITCH, "", "", 1, 1),
    "ipx::update_checksums": Command(PACKAGE, "", "", 1, 1),
    "ipx::save_core": Command(PACKAGE, "", "", 1, 1),
    # block design
    "create_bd_design": Command(FINN, "", "", 1, 1),
    "create_bd_cell": Command(FINN, "-type -vlnv", "", 1, 1),
    "get_bd_cells": Command(FINN, "", "", 1, 1),
    "get_bd_pins": Command(FINN, "", "", 1, 1),
    "get_bd_intf_pins": Command(FINN, "", "", 1, 1),
    "get_bd_intf_ports": Command(Z2, "", "", 1, 1),
    "create_bd_intf_port": Command(Z2, "-mode -vlnv", "", 1, 1),
    "apply_bd_automation": Command(FINN, "-rule -config", "", 1, 1),
    "connect_bd_net": Command(FINN, "", "", 2, 2),
    "connect_bd_intf_net": Command(FINN, "", "", 2, 2),
    "get_bd_addr_spaces": Command(PLUTO, "", "", 1, 1),
    "get_bd_addr_segs": Command(PLUTO, "", "", 1, 1),
    "create_bd_addr_seg": Command(PLUTO, "-range -offset", "", 3, 3),
    "save_bd_design": Command(FINN),
    "validate_bd_design": Command(FINN),
}

# property (small letters): file, allowed values ("" any); of each class of object that is no cell
PROPERTIES: dict[str, dict[str, tuple[str, str]]] = {
    "project": {"board_part": (PROJECT, ""), "ip_repo_paths": (PROJECT, "")},
    "fileset": {"top": (PROJECT, "")},
    "file": {"synth_checkpoint_mode": (FINN, "Hierarchical")},
    "run": {
        "strategy": (FINN, "Flow_PerfOptimized_high Performance_ExtraTimingOpt"),
        "steps.post_route_phys_opt_design.is_enabled": (FINN, "true"),
    },
    "core": {"name": (PACKAGE, ""), "ipi_drc": (STITCH, "{ignore_freq_hz true}")},
    "bus_interface": {
        "abstraction_type_vlnv": (PACKAGE, ""),
        "bus_type_vlnv": (PACKAGE, ""),
        "interface_mode": (PACKAGE, "master slave"),
        "slave_memory_map_ref": (PACKAGE, ""),
        "master_address_space_ref": (HBM, ""),
    },
    "port_map": {"physical_name": (PACKAGE, "")},
    "bus_parameter": {"value": (PACKAGE, "")},
    "address_block": {"range": (PACKAGE, "")},
    "address_space": {"range": (HBM, "")},
}
# parameters of interfaces
PARAMETERS = {
    "PROTOCOL": "", "SUPPORTS_NARROW_BURST": DMAC, "ASSOCIATED_BUSIF": PACKAGE, "ASSOCIATED_RESET": PACKAGE,
    "POLARITY": PACKAGE, "SENSITIVITY": "",
}  # fmt: skip
RULES = {"xilinx.com:bd_rule:processing_system7": FINN, "xilinx.com:bd_rule:zynq_ultra_ps_e": FINN}
KINDS = {  # abstractions of interfaces and of external ports
    "xilinx.com:interface:aximm_rtl:1.0": PACKAGE,
    "xilinx.com:signal:clock_rtl:1.0": PACKAGE,
    "xilinx.com:signal:reset_rtl:1.0": PACKAGE,
    "xilinx.com:signal:interrupt_rtl:1.0": DMAC,
    "xilinx.com:interface:ddrx_rtl:1.0": Z2,
    "xilinx.com:display_processing_system7:fixedio_rtl:1.0": Z2,
}
