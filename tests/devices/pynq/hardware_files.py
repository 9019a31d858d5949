"""The two files that pynq loads, made from a manifest: a hardware handoff (.hwh), and a bitstream without content."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from chai.overlay import Overlay
from chai.overlay.sections import Register

# what pynq's parser has to find in a design of each family
FAMILIES = {
    "zynq7000": {
        "arch": "zynq", "processor": ("ps7", "processing_system7", "xilinx.com:ip:processing_system7:5.5"),
        "control": "M_AXI_GP0", "memory": "S_AXI_HP0", "base": 0x4000_0000, "clocks": "FCLK_CLK{}", "interrupt": "IRQ_F2P",
        "clock": {
            "PCW_USE_S_AXI_HP{}": "1", "PCW_S_AXI_HP{}_DATA_WIDTH": "64",
            "PCW_FPGA_FCLK{}_ENABLE": "{on}", "PCW_FCLK{}_PERIPHERAL_DIVISOR0": "5", "PCW_FCLK{}_PERIPHERAL_DIVISOR1": "2",
            "PCW_FCLK{}_PERIPHERAL_CLKSRC": "IO PLL", "PCW_ACT_FPGA{}_PERIPHERAL_FREQMHZ": "{mhz}",
        },
    },
    "zynqmp": {
        "arch": "zynquplus", "processor": ("ps_e", "zynq_ultra_ps_e", "xilinx.com:ip:zynq_ultra_ps_e:3.5"),
        "control": "M_AXI_HPM0_FPD", "memory": "S_AXI_HP0_FPD", "base": 0xA000_0000, "clocks": "pl_clk{}",
        "interrupt": "pl_ps_irq0",
        "clock": {
            "PSU__USE__S_AXI_GP{port}": "1", "PSU__SAXIGP{port}__DATA_WIDTH": "64", "C_SAXIGP{port}_DATA_WIDTH": "64",
            "PSU__FPGA_PL{}_ENABLE": "{on}", "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR0": "10",
            "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR1": "1", "PSU__CRL_APB__PL{}_REF_CTRL__SRCSEL": "IOPLL",
            "PSU__CRL_APB__PL{}_REF_CTRL__ACT_FREQMHZ": "{mhz}",
        },
    },
}  # fmt: skip
REGISTERS = "REGISTER", "Reg"
ACCESS = {"r": "read-only", "w": "write-only", "rw": "read-write", "w1c": "read-write"}


def base(overlay: Overlay) -> int:
    """Where the accelerator's registers are."""
    return int(FAMILIES[overlay.family]["base"])  # type: ignore[call-overload]


def controller(overlay: Overlay) -> int:
    """Where the registers of the interrupt controller are."""
    return base(overlay) + 0x1_0000


def handoff(overlay: Overlay, vlnv: str | None = None, clock: int | None = 0, interrupt: bool = False) -> bytes:
    """The .hwh of a design with a processor and one accelerator (of another ``vlnv``, to test that it is refused).

    ``clock`` is the processor's that drives it, None for one of another source; ``interrupt`` adds an AXI interrupt
    controller between it and the processor.
    """
    family = FAMILIES[overlay.family]
    name, kind, processor = family["processor"]
    clocks = {
        key.format(i, port=i + 2): value.format(on=int(i == (clock or 0)), mhz=overlay.clock_mhz)
        for i in range(4)
        for key, value in family["clock"].items()
    }
    part = overlay.boards[0].part
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION="2022.1")
    SubElement(root, "SYSTEMINFO", ARCH=family["arch"], DEVICE=part, NAME="design", PACKAGE="x", SPEEDGRADE="-1")
    SubElement(root, "EXTERNALPORTS")
    SubElement(root, "EXTERNALINTERFACES")
    modules = SubElement(root, "MODULES")
    masters = [(family["control"], "MASTER"), (family["memory"], "SLAVE")]
    first = _module(modules, name, kind, processor, clocks, masters, IS_PL="FALSE")
    end = base(overlay) + overlay.registers.window - 1
    _range(first, "accelerator", base(overlay), end, family["control"], "s_axi", *REGISTERS)
    ports = [("s_axi", "SLAVE"), ("m_axi", "MASTER")]
    second = _module(modules, "accelerator", "chai_array", vlnv or overlay.vlnv, {}, ports)
    _range(second, name, 0, (1 << 30) - 1, "m_axi", family["memory"], "MEMORY", "DDR")
    about = {"ACCESS": "read-write", "INTERFACE": "s_axi", "NAME": "Reg", "USAGE": "register"}
    block = SubElement(SubElement(second, "ADDRESSBLOCKS"), "ADDRESSBLOCK", about, RANGE=str(overlay.registers.window))
    registers = SubElement(block, "REGISTERS")
    for register in overlay.registers.list:
        _register(registers, register)
    if clock is None:
        between = _module(modules, "clk_wiz_0", "clk_wiz", "xilinx.com:ip:clk_wiz:6.0", {}, [])
        _wire(first, family["clocks"].format(0), between, "clk_in1", "clk")
        _wire(between, "clk_out1", second, "aclk", "clk")
    else:
        _wire(first, family["clocks"].format(clock), second, "aclk", "clk")
    if interrupt:
        _range(
            first,
            "axi_intc_0",
            controller(overlay),
            controller(overlay) + 0xFFF,
            family["control"],
            "s_axi",
            *REGISTERS,
        )
        third = _module(modules, "axi_intc_0", "axi_intc", "xilinx.com:ip:axi_intc:4.1", {}, [("s_axi", "SLAVE")])
        third.set("MODCLASS", "INTERRUPT_CNTLR")
        _wire(second, "interrupt", third, "intr", "INTERRUPT")
        _wire(third, "irq", first, family["interrupt"], "INTERRUPT")
    indent(root)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root)


def _module(
    modules: Element,
    name: str,
    kind: str,
    vlnv: str,
    parameters: dict[str, str],
    buses: list[tuple[str, str]],
    **more: str,
) -> Element:
    about = {
        "INSTANCE": name,
        "FULLNAME": f"/{name}",
        "MODTYPE": kind,
        "VLNV": vlnv,
        "IPTYPE": "PERIPHERAL",
        "MODCLASS": "PERIPHERAL",
    }
    module = SubElement(modules, "MODULE", {**about, **more})
    section = SubElement(module, "PARAMETERS")
    for key, value in parameters.items():
        SubElement(section, "PARAMETER", NAME=key, VALUE=value)
    ports, interfaces = SubElement(module, "PORTS"), SubElement(module, "BUSINTERFACES")
    for bus, role in buses:  # every bus needs a signal that is a port
        SubElement(
            ports, "PORT", NAME=f"{bus}_addr", DIR="O" if role == "MASTER" else "I", LEFT="31", RIGHT="0", SIGIS="undef"
        )
        about = {"NAME": bus, "TYPE": role, "BUSNAME": f"{bus}_net", "VLNV": "xilinx.com:interface:aximm:1.0"}
        maps = SubElement(SubElement(interfaces, "BUSINTERFACE", about), "PORTMAPS")
        SubElement(maps, "PORTMAP", LOGICAL="ADDR", PHYSICAL=f"{bus}_addr")
    SubElement(module, "MEMORYMAP")
    return module


def _wire(source: Element, output: str, target: Element, input: str, kind: str) -> None:
    """A signal from one module to another: a port on either side names the other."""
    for module, name, direction, other, end in (
        (source, output, "O", target, input),
        (target, input, "I", source, output),
    ):
        ports = module.find("PORTS")
        assert ports is not None
        signal = f"{source.get('INSTANCE')}_{output}"
        port = SubElement(ports, "PORT", NAME=name, DIR=direction, SIGIS=kind, SIGNAME=signal)
        connections = SubElement(port, "CONNECTIONS")
        SubElement(connections, "CONNECTION", INSTANCE=other.get("INSTANCE", ""), PORT=end)


def _range(module: Element, target: str, first: int, last: int, master: str, slave: str, kind: str, block: str) -> None:
    memory = module.find("MEMORYMAP")
    assert memory is not None
    about = {
        "INSTANCE": target,
        "MASTERBUSINTERFACE": master,
        "SLAVEBUSINTERFACE": slave,
        "MEMTYPE": kind,
        "ADDRESSBLOCK": block,
    }
    SubElement(memory, "MEMRANGE", {**about, "BASEVALUE": f"0x{first:08X}", "HIGHVALUE": f"0x{last:08X}"})


def _register(registers: Element, register: Register) -> None:
    element = SubElement(registers, "REGISTER", NAME=register.name)
    access = ACCESS[register.access]
    properties = {
        "DESCRIPTION": register.about, "ADDRESS_OFFSET": hex(register.offset), "SIZE": 32, "ACCESS": access,
        "IS_ENABLED": "true", "RESET_VALUE": 0,
    }  # fmt: skip
    for key, value in properties.items():
        SubElement(element, "PROPERTY", NAME=key, VALUE=str(value))
    fields = SubElement(element, "FIELDS")
    for bits in register.bits:
        field = SubElement(fields, "FIELD", NAME=bits.name)
        about = {"DESCRIPTION": bits.name, "ACCESS": access, "BIT_OFFSET": bits.bit, "BIT_WIDTH": bits.width}
        for key, value in about.items():
            SubElement(field, "PROPERTY", NAME=key, VALUE=str(value))


def bitstream(overlay: Overlay) -> bytes:
    """A .bit: the header with its five tagged fields (name, part, date, time, length), and a sync word."""
    magic = bytes.fromhex("0ff00ff00ff00ff000")
    inside = b"\xff" * 32 + bytes.fromhex("aa995566") + bytes.fromhex("20000000") * 8
    content = struct.pack(">H", len(magic)) + magic + struct.pack(">H", 1)
    texts = "design;UserID=0XFFFFFFFF", overlay.boards[0].part.removeprefix("xc"), "2026/01/01", "00:00:00"
    for tag, text in zip(b"abcd", texts):
        content += struct.pack(">BH", tag, len(text) + 1) + text.encode() + b"\0"
    return content + b"e" + struct.pack(">I", len(inside)) + inside


def name_digest(manifest: Path, bit: Path) -> None:
    """Name a bitstream in a manifest as the published one."""
    value = json.loads(manifest.read_text())
    data = bit.read_bytes()
    value["bitstreams"][0] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest.write_text(json.dumps(value, indent=2))
