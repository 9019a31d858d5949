"""The accelerator's outer Verilog module: AXI with the names and the protocol that the processor's ports have.

A Zynq-7000 has AXI3 (bursts of at most 16 beats, WID), an UltraScale+ AXI4, of which the masters use 32 beats. All
transactions have ID 0, so the ports have none.
"""

from __future__ import annotations

from itertools import product

from ..overlay import Overlay
from ..overlay.sections import MEMORY_PORTS

PROTOCOLS = {"zynq7000": "AXI3", "zynqmp": "AXI4"}

# (name, bits, whether the master drives it); A is the bits of an address, L those of a length, D and S of a beat and its strobes
Signals = list[tuple[str, "int | str", bool]]
_ADDRESS: Signals = [("addr", "A", True), ("len", "L", True), ("size", 3, True), ("burst", 2, True), ("cache", 4, True),
            ("prot", 3, True), ("valid", 1, True), ("ready", 1, False)]  # fmt: skip
_READ_DATA: Signals = [("rdata", "D", False), ("rresp", 2, False), ("rlast", 1, False), ("rvalid", 1, False),
              ("rready", 1, True)]  # fmt: skip
_WRITE_DATA: Signals = [("wdata", "D", True), ("wstrb", "S", True), ("wlast", 1, True), ("wvalid", 1, True), ("wready", 1, False),
               ("bresp", 2, False), ("bvalid", 1, False), ("bready", 1, True)]  # fmt: skip
_LITE: Signals = [("awaddr", "A", False), ("awprot", 3, False), ("awvalid", 1, False), ("awready", 1, True),
         ("wdata", 32, False), ("wstrb", 4, False), ("wvalid", 1, False), ("wready", 1, True),
         ("bresp", 2, True), ("bvalid", 1, True), ("bready", 1, False),
         ("araddr", "A", False), ("arprot", 3, False), ("arvalid", 1, False), ("arready", 1, True),
         ("rdata", 32, True), ("rresp", 2, True), ("rvalid", 1, True), ("rready", 1, False)]  # fmt: skip
# channel, its address channel, its signals, and inputs of the core that are ID 0
_CHANNELS = {"read": ("ar", _READ_DATA, ("rid",), ("arid",)), "write": ("aw", _WRITE_DATA, ("bid",), ("awid", "wid"))}


def module(overlay: Overlay) -> str:
    """Return the name of the module: that of the IP."""
    return overlay.vlnv.split(":")[2]


def wrapper(overlay: Overlay) -> str:
    """Return the Verilog of the module around the core, ``NAME_core``."""
    name, axi3 = module(overlay), PROTOCOLS[overlay.family] == "AXI3"
    bits: dict[int | str, int] = {"A": overlay.address_bits, "D": 8 * overlay.ports.bytes, "S": overlay.ports.bytes}
    length, window = ((size - 1).bit_length() for size in (overlay.burst_beats, overlay.registers.window))
    ports = ["input wire aclk", "input wire aresetn", "output wire interrupt"]
    links = [".clk(aclk)", ".rst(reset)", ".interrupt(interrupt)"]
    unused, fixed = [], []
    for signal, width, out in _LITE:
        ports.append(_port(f"s_axi_{signal}", window if width == "A" else width, out))
        links.append(f".bus__{signal}(s_axi_{signal})")
    masters = [(m, c) for m, c in product(MEMORY_PORTS, _CHANNELS) if c == "read" or m in overlay.written_ports]
    for master, channel in masters:
        address, data, ids, driven = _CHANNELS[channel]
        for signal, width, out in [(address + each, width, out) for each, width, out in _ADDRESS] + data:
            port, core = f"{master}_{signal}", f"{master}_{channel}__{signal}"
            if width == "L":
                ports.append(_port(port, 4 if axi3 else 8, out))
                links.append(f".{core}({port}[{length - 1}:0])")
                fixed += [] if axi3 else [f"{port}[7:{length}] = {8 - length}'d0"]
                continue
            ports.append(_port(port, bits.get(width) or width, out))
            links.append(f".{core}({port})")
        ports += [_port(f"{master}_{address}lock", 2 if axi3 else 1, True), _port(f"{master}_{address}qos", 4, True)]
        fixed += [f"{master}_{address}lock = {2 if axi3 else 1}'d0", f"{master}_{address}qos = 4'd0"]
        links += [f".{master}_{channel}__{each}(1'b0)" for each in ids]
        links += [f".{master}_{channel}__{each}(unused_{master}_{each})" for each in driven]
        unused += [f"unused_{master}_{each}" for each in driven]
    lines = [
        f"// {overlay.title}: overlay {overlay.name}, build {overlay.build:08x}",
        f"// {' and '.join(overlay.written_ports)} read and write, the other ports only read; "
        f"{PROTOCOLS[overlay.family]}, {bits['D']} bits, at most {overlay.burst_beats} beats",
        "/* verilator lint_off SYMRSVDWORD */  // interrupt, a word of C++ libraries",
        "`default_nettype none",
        f"module {name} (",
        ",\n".join(f"  {port}" for port in ports),
        ");",
        "  // the core's reset is active high; a register of its own for it",
        "  reg reset;",
        "  always @(posedge aclk) reset <= !aresetn;",
        *(f"  assign {each};" for each in fixed),
        f"  wire {', '.join(unused)};  // all transactions have ID 0",
        f"  {name}_core core (",
        ",\n".join(f"    {link}" for link in links),
        "  );",
        "endmodule",
        "`default_nettype wire",
        "/* verilator lint_on SYMRSVDWORD */",
    ]
    return "\n".join(lines) + "\n"


def _port(name: str, bits: int | str, out: bool) -> str:
    width = "" if bits == 1 else f"[{int(bits) - 1}:0] "
    return f"{'output' if out else 'input'} wire {width}{name}"
