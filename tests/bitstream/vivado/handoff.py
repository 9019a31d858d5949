"""The hardware handoff (.hwh) that Vivado writes of a block design, as far as pynq reads it."""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from .design import Cell, Design

FAMILIES = {  # PARAMETERs of the processor's clocks, which pynq reads
    "processing_system7": (
        "zynq", 1000,
        {
            "PCW_FPGA_FCLK{}_ENABLE": "{on}", "PCW_FCLK{}_PERIPHERAL_DIVISOR0": "{divider}",
            "PCW_FCLK{}_PERIPHERAL_DIVISOR1": "1", "PCW_FCLK{}_PERIPHERAL_CLKSRC": "IO PLL",
            "PCW_ACT_FPGA{}_PERIPHERAL_FREQMHZ": "{mhz}",
        },
    ),
    "zynq_ultra_ps_e": (
        "zynquplus", 1500,
        {
            "PSU__FPGA_PL{}_ENABLE": "{on}", "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR0": "{divider}",
            "PSU__CRL_APB__PL{}_REF_CTRL__DIVISOR1": "1", "PSU__CRL_APB__PL{}_REF_CTRL__SRCSEL": "IOPLL",
            "PSU__CRL_APB__PL{}_REF_CTRL__ACT_FREQMHZ": "{mhz}",
        },
    ),
}  # fmt: skip
SIGIS = {"clk": "clk", "rst": "rst", "intr": "INTERRUPT", "": "undef"}


def handoff(design: Design, part: str, version: str) -> bytes:
    """Return the .hwh."""
    arch = next(FAMILIES[_kind(cell)][0] for cell in design.cells.values() if _kind(cell) in FAMILIES)
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION=version)
    SubElement(root, "SYSTEMINFO", ARCH=arch, DEVICE=part, NAME="chai", PACKAGE="x", SPEEDGRADE="-1")
    SubElement(root, "EXTERNALPORTS")
    SubElement(root, "EXTERNALINTERFACES")
    modules = SubElement(root, "MODULES")
    for cell in design.cells.values():
        _module(modules, design, cell)
    indent(root)
    return b'<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root)


def _kind(cell: Cell) -> str:
    return cell.vlnv.split(":")[2]


def _module(modules: Element, design: Design, cell: Cell) -> None:
    kind = _kind(cell)
    about = {
        "FULLNAME": f"/{cell.name}",
        "INSTANCE": cell.name,
        "IPTYPE": "PERIPHERAL",
        "MODTYPE": kind,
        "VLNV": cell.vlnv,
    }
    about |= {"IS_PL": "FALSE" if kind in FAMILIES else "TRUE"}
    about["MODCLASS"] = "INTERRUPT_CNTLR" if kind == "axi_intc" else "PERIPHERAL"
    module = SubElement(modules, "MODULE", about)
    parameters = SubElement(module, "PARAMETERS")
    for name, value in _parameters(design, cell).items():
        SubElement(parameters, "PARAMETER", NAME=name, VALUE=value)
    _ports(module, design, cell)
    _interfaces(module, design, cell)
    memory = SubElement(module, "MEMORYMAP")
    for segment in design.segments:
        space, target = segment.space.split("/"), segment.target.split("/", 1)
        if space[0] != cell.name:
            continue
        slave = design.cells[target[0]]
        _, interface, _ = slave.kind.segments[target[1]]
        registers = slave.kind.spaces.keys().isdisjoint({"Data"})
        about = {
            "ADDRESSBLOCK": target[1].split("/")[-1], "BASEVALUE": f"0x{segment.offset:08X}",
            "HIGHVALUE": f"0x{segment.offset + segment.range - 1:08X}", "INSTANCE": slave.name,
            "MASTERBUSINTERFACE": cell.kind.spaces[space[1]][1], "MEMTYPE": "REGISTER" if registers else "MEMORY",
            "SLAVEBUSINTERFACE": interface,
        }  # fmt: skip
        SubElement(memory, "MEMRANGE", about)


def _parameters(design: Design, cell: Cell) -> dict[str, str]:
    values = {name: cell.value(name) for name in cell.kind.properties}
    if _kind(cell) in FAMILIES:
        _, pll, names = FAMILIES[_kind(cell)]
        for number in range(4):
            mhz = design.mhz() if number == 0 else pll / 10
            facts = {"on": int(number == 0), "divider": round(pll / mhz), "mhz": f"{mhz:.6f}"}
            values |= {name.format(number): value.format(**facts) for name, value in names.items()}
    return values


def _ports(module: Element, design: Design, cell: Cell) -> None:
    """Pins with the other ends of their nets, and the ports of the IP's interfaces."""
    ports = SubElement(module, "PORTS")
    for name, pin in cell.pins().items():
        path = f"{cell.name}/{name}"
        ends = [sink for sink, driver in design.net.items() if driver == path] if pin.out else [design.net[path]]
        driver = path if pin.out else design.net[path]
        about = {"DIR": "O" if pin.out else "I", "NAME": name, "SIGIS": SIGIS[pin.kind]}
        about["SIGNAME"] = driver.replace("/", "_")
        if pin.kind == "clk":
            about["CLKFREQUENCY"] = str(round(design.mhz() * 1e6))
        port = SubElement(ports, "PORT", about)
        connections = SubElement(port, "CONNECTIONS")
        for end in ends:
            instance, other = end.split("/")
            SubElement(connections, "CONNECTION", INSTANCE=instance, PORT=other)
    for name, maps in _maps(cell).items():
        for port_name, out, bits in maps.values():
            about = {
                "DIR": "O" if out else "I",
                "LEFT": str(bits - 1),
                "NAME": port_name,
                "RIGHT": "0",
                "SIGIS": "undef",
            }
            SubElement(ports, "PORT", about | {"SIGNAME": f"{cell.name}_{name}_{port_name}"})


def _interfaces(module: Element, design: Design, cell: Cell) -> None:
    section = SubElement(module, "BUSINTERFACES")
    for name, interface in cell.interfaces().items():
        if interface.type != "aximm_rtl":
            continue
        path = f"{cell.name}/{name}"
        master = path if interface.master else design.link[path]
        about = {"BUSNAME": master.replace("/", "_"), "NAME": name, "TYPE": "MASTER" if interface.master else "SLAVE"}
        about |= {"DATAWIDTH": cell.width(interface), "VLNV": "xilinx.com:interface:aximm:1.0"}
        bus = SubElement(section, "BUSINTERFACE", about)
        SubElement(bus, "PARAMETER", NAME="PROTOCOL", VALUE=interface.protocol)
        maps = SubElement(bus, "PORTMAPS")
        for logical, (port, _, _) in _maps(cell)[name].items():
            SubElement(maps, "PORTMAP", LOGICAL=logical, PHYSICAL=port)


def _maps(cell: Cell) -> dict[str, dict[str, tuple[str, bool, int]]]:
    """The signals of each interface: logical name to port, whether it is an output, and bits."""
    if cell.packaged is not None:
        ports = cell.packaged.ports
        return {
            name: {logical: (p, *ports[p]) for logical, p in maps.items()} for name, maps in cell.packaged.maps.items()
        }
    return {
        name: {"ARADDR": (f"{name}_araddr", interface.master, 32)}
        for name, interface in cell.interfaces().items()
        if interface.type == "aximm_rtl"
    }
