"""The IPs of the block design: versions, properties, pins and interfaces, each with the public file that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .known import ADRD, BOARD, CORUNDUM, FINN, PLUTO, VTA, Z2, Z2_BOOT, Z2_LOGIC, ZCU102, ZCU104, ZED


class Pin(NamedTuple):
    """A pin: its direction, kind ("clk", "rst", "intr" or ""), file, and the property that has to be 1."""

    out: bool
    kind: str
    file: str
    needs: str = ""


class Interface(NamedTuple):
    """An interface pin: master or slave, what it is, file, clock pin, protocol, width or its property, the property it needs."""

    master: bool
    type: str
    file: str
    clock: str = ""
    protocol: str = ""
    width: str = ""
    needs: str = ""


class Kind(NamedTuple):
    """An IP: versions from old to new, properties with file, values and default, pins, interfaces, address segments."""

    versions: Mapping[str, str]  # of each Vivado
    properties: Mapping[str, tuple[str, str, str]]
    pins: Mapping[str, Pin]
    interfaces: Mapping[str, Interface]
    segments: Mapping[str, tuple[str, str, int]] = {}  # segment: file, interface, bytes
    spaces: Mapping[str, tuple[str, str]] = {}  # address space: file, interface


def both(old: str, new: str) -> dict[str, str]:
    return {"2020.1": old, "2024.2": new}


PS7 = Kind(
    both("5.5", "5.5"),
    {
        "PCW_USE_M_AXI_GP0": (Z2, "0 1", "1"),
        "PCW_USE_M_AXI_GP1": (Z2, "0 1", "0"),
        "PCW_USE_S_AXI_ACP": (Z2, "0 1", "0"),
        "PCW_USE_S_AXI_HP0": (PLUTO.replace("pluto/system_bd", "scripts/adi_board"), "0 1", "0"),
        "PCW_USE_S_AXI_HP1": (PLUTO, "0 1", "0"),
        "PCW_USE_S_AXI_HP2": (PLUTO, "0 1", "0"),
        "PCW_USE_S_AXI_HP3": (BOARD, "0 1", "0"),
        "PCW_S_AXI_HP0_DATA_WIDTH": (Z2, "32 64", "64"),
        "PCW_S_AXI_HP1_DATA_WIDTH": (Z2_LOGIC, "32 64", "64"),
        "PCW_S_AXI_HP2_DATA_WIDTH": (Z2, "32 64", "64"),
        "PCW_S_AXI_HP3_DATA_WIDTH": (Z2_LOGIC, "32 64", "64"),
        "PCW_USE_FABRIC_INTERRUPT": (ZED, "0 1", "0"),
        "PCW_IRQ_F2P_INTR": (ZED, "0 1", "0"),
        "PCW_FPGA_FCLK0_ENABLE": (Z2_BOOT, "0 1", "1"),
        "PCW_FCLK0_PERIPHERAL_CLKSRC": (Z2_BOOT, "{IO PLL}", "IO PLL"),
        "PCW_FPGA0_PERIPHERAL_FREQMHZ": (ZED, "", "50"),
        "PCW_CRYSTAL_PERIPHERAL_FREQMHZ": (Z2_BOOT, "50 33.333333", "33.333333"),
        "PCW_APU_PERIPHERAL_FREQMHZ": (Z2_BOOT, "650", "666.666666"),
        "PCW_UIPARAM_DDR_FREQ_MHZ": (Z2_BOOT, "525", "533.333333"),
        "PCW_UIPARAM_DDR_BUS_WIDTH": (Z2_BOOT, "{16 Bit}", "32 Bit"),
        "PCW_UIPARAM_DDR_PARTNO": (Z2_BOOT, "{MT41J256M16 RE-125} Custom", "MT41J256M8 HX-15E"),
        "PCW_IMPORT_BOARD_PRESET": (ZED, "ZedBoard", "None"),
    },
    {
        "FCLK_CLK0": Pin(True, "clk", FINN, "PCW_FPGA_FCLK0_ENABLE"),
        "FCLK_RESET0_N": Pin(True, "rst", VTA),
        "M_AXI_GP0_ACLK": Pin(False, "clk", VTA, "PCW_USE_M_AXI_GP0"),
        "S_AXI_ACP_ACLK": Pin(False, "clk", VTA, "PCW_USE_S_AXI_ACP"),
        "S_AXI_HP0_ACLK": Pin(False, "clk", FINN, "PCW_USE_S_AXI_HP0"),
        "S_AXI_HP1_ACLK": Pin(False, "clk", PLUTO, "PCW_USE_S_AXI_HP1"),
        "S_AXI_HP2_ACLK": Pin(False, "clk", PLUTO, "PCW_USE_S_AXI_HP2"),
        "S_AXI_HP3_ACLK": Pin(False, "clk", Z2_LOGIC, "PCW_USE_S_AXI_HP3"),
        "IRQ_F2P": Pin(False, "intr", Z2, "PCW_IRQ_F2P_INTR"),
    },
    {
        "DDR": Interface(True, "ddrx_rtl", Z2),
        "FIXED_IO": Interface(True, "fixedio_rtl", Z2),
        "M_AXI_GP0": Interface(True, "aximm_rtl", FINN, "M_AXI_GP0_ACLK", "AXI3", "32", "PCW_USE_M_AXI_GP0"),
        "S_AXI_ACP": Interface(False, "aximm_rtl", VTA, "S_AXI_ACP_ACLK", "AXI3", "64", "PCW_USE_S_AXI_ACP"),
        **{
            f"S_AXI_HP{n}": Interface(
                False, "aximm_rtl", BOARD, f"S_AXI_HP{n}_ACLK", "AXI3", f"PCW_S_AXI_HP{n}_DATA_WIDTH",
                f"PCW_USE_S_AXI_HP{n}",
            )
            for n in range(4)
        },
    },
    {f"S_AXI_HP{n}/HP{n}_DDR_LOWOCM": (BOARD, f"S_AXI_HP{n}", 1 << 30) for n in range(4)},
    {"Data": (BOARD, "M_AXI_GP0")},
)  # fmt: skip

_HP_CLOCKS = [ADRD, ADRD, ZCU104, CORUNDUM]
PS8 = Kind(
    both("3.3", "3.5"),
    {
        "PSU__USE__M_AXI_GP0": (VTA, "0 1", "1"),
        "PSU__USE__M_AXI_GP1": (VTA, "0 1", "1"),
        "PSU__USE__M_AXI_GP2": (VTA, "0 1", "0"),
        **{f"PSU__USE__S_AXI_GP{n + 2}": (BOARD, "0 1", "0") for n in range(4)},
        "PSU__SAXIGP2__DATA_WIDTH": (ZCU104, "32 64 128", "128"),
        "PSU__SAXIGP3__DATA_WIDTH": ("", "32 64 128", "128"),
        "PSU__SAXIGP4__DATA_WIDTH": (ZCU104, "32 64 128", "128"),
        "PSU__SAXIGP5__DATA_WIDTH": ("", "32 64 128", "128"),
        "PSU__USE__IRQ0": (ZCU102, "0 1", "0"),
        "PSU__FPGA_PL0_ENABLE": (ZCU102, "0 1", "1"),
        "PSU__CRL_APB__PL0_REF_CTRL__SRCSEL": (ZCU102, "IOPLL RPLL DPLL", "IOPLL"),
        "PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ": (ZCU102, "", "100"),
    },
    {
        "pl_clk0": Pin(True, "clk", FINN, "PSU__FPGA_PL0_ENABLE"),
        "pl_resetn0": Pin(True, "rst", ZCU102),
        "maxihpm0_fpd_aclk": Pin(False, "clk", VTA, "PSU__USE__M_AXI_GP0"),
        **{f"saxihp{n}_fpd_aclk": Pin(False, "clk", _HP_CLOCKS[n], f"PSU__USE__S_AXI_GP{n + 2}") for n in range(4)},
        "pl_ps_irq0": Pin(False, "intr", ZCU102, "PSU__USE__IRQ0"),
    },
    {
        "M_AXI_HPM0_FPD": Interface(
            True, "aximm_rtl", FINN, "maxihpm0_fpd_aclk", "AXI4", "128", "PSU__USE__M_AXI_GP0"
        ),
        **{
            f"S_AXI_HP{n}_FPD": Interface(
                False, "aximm_rtl", BOARD, f"saxihp{n}_fpd_aclk", "AXI4", f"PSU__SAXIGP{n + 2}__DATA_WIDTH",
                f"PSU__USE__S_AXI_GP{n + 2}",
            )
            for n in range(4)
        },
    },
    {
        f"SAXIGP{n + 2}/HP{n}_DDR_LOW": (ZCU104 if n in (0, 2) else "", f"S_AXI_HP{n}_FPD", 1 << 31)
        for n in range(4)
    },
    {"Data": (BOARD, "M_AXI_HPM0_FPD")},
)  # fmt: skip

_MI = range(4)
CELLS: dict[str, Kind] = {
    "processing_system7": PS7,
    "zynq_ultra_ps_e": PS8,
    "axi_interconnect": Kind(
        both("2.1", "2.1"),
        {"NUM_SI": (VTA, "1", "1"), "NUM_MI": (VTA, "1 2 3 4", "2")},
        {
            "ACLK": Pin(False, "clk", VTA),
            "ARESETN": Pin(False, "rst", VTA),
            "S00_ACLK": Pin(False, "clk", VTA),
            "S00_ARESETN": Pin(False, "rst", VTA),
            **{f"M{n:02}_ACLK": Pin(False, "clk", VTA, f"NUM_MI>{n}") for n in _MI},
            **{f"M{n:02}_ARESETN": Pin(False, "rst", VTA, f"NUM_MI>{n}") for n in _MI},
        },
        {
            "S00_AXI": Interface(False, "aximm_rtl", VTA, "S00_ACLK", "any", "any"),
            **{
                f"M{n:02}_AXI": Interface(True, "aximm_rtl", VTA, f"M{n:02}_ACLK", "any", "any", f"NUM_MI>{n}")
                for n in _MI
            },
        },
    ),
    "axi_intc": Kind(
        both("4.1", "4.1"),
        {"C_IRQ_CONNECTION": (ZCU104, "0 1", "0")},
        {
            "s_axi_aclk": Pin(False, "clk", ZCU104),
            "s_axi_aresetn": Pin(False, "rst", ZCU104),
            "intr": Pin(False, "intr", ZCU104),
            "irq": Pin(True, "intr", ZCU104),
        },
        {"s_axi": Interface(False, "aximm_rtl", ZCU104, "s_axi_aclk", "AXI4LITE", "32")},
        {"S_AXI/Reg": (ZCU104, "s_axi", 1 << 16)},
    ),
    "xlconcat": Kind(
        both("2.1", "2.1"),
        {"NUM_PORTS": (Z2, "1 2 3 4", "2")},
        {**{f"In{n}": Pin(False, "intr", Z2, f"NUM_PORTS>{n}") for n in range(4)}, "dout": Pin(True, "intr", Z2)},
        {},
    ),
    "proc_sys_reset": Kind(
        both("5.0", "5.0"),
        {},
        {
            "slowest_sync_clk": Pin(False, "clk", VTA),
            "ext_reset_in": Pin(False, "rst", VTA),
            "interconnect_aresetn": Pin(True, "rst", VTA),
            "peripheral_aresetn": Pin(True, "rst", VTA),
        },
        {},
    ),
}
