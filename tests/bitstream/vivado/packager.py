"""The IP packager: a core with interfaces, parameters, an address map, made from the ports of a Verilog module."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .cells import Interface, Kind, Pin
from .design import Packaged, Refused
from .known import KINDS, PARAMETERS

_PORT = re.compile(r"^\s*(input|output) wire (?:\[(\d+):0\] )?(\w+),?$", re.M)
SIGNALS = {"clock": "clk", "reset": "rst", "interrupt": "intr"}


def ports(verilog: str, top: str) -> dict[str, tuple[bool, int]]:
    """Ports of a module: whether each is an output, and its bits."""
    header = re.search(rf"^module {top} \((.*?)^\);", verilog, re.M | re.S)
    if header is None:
        raise Refused(f"there is no module {top} in the files of the project")
    return {name: (way == "output", int(high or 0) + 1) for way, high, name in _PORT.findall(header[1])}


@dataclass
class Bus:
    """An interface of a core."""

    values: dict[str, str] = field(default_factory=dict)
    maps: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)


class Core:
    """A core that is packaged; objects are named by lists such as ``core bus_interface m0 bus_parameter PROTOCOL``."""

    def __init__(self, vendor: str, library: str, name: str, ports: dict[str, tuple[bool, int]]) -> None:
        self.vendor, self.library, self.ports = vendor, library, ports
        self.values = {"name": name, "version": "1.0"}
        self.saved = False
        self.maps: dict[str, dict[str, int]] = {}  # memory maps, and the bytes of their blocks
        self.spaces: dict[str, int] = {}  # address spaces, and their bytes
        self.buses: dict[str, Bus] = {"s_axi": Bus()}  # as inferred, in whatever way
        self.maps["s_axi"] = {"reg0": 4096}

    @property
    def vlnv(self) -> str:
        return f"{self.vendor}:{self.library}:{self.values['name']}:{self.values['version']}"

    def bus(self, name: str) -> Bus:
        if name not in self.buses:
            raise Refused(f"the core has no interface {name}")
        return self.buses[name]

    def add_bus(self, name: str) -> str:
        if name in self.buses:
            raise Refused(f"the core has an interface {name} already")
        self.buses[name] = Bus()
        return f"core bus_interface {name}"

    def infer(self, port: str, kind: str) -> str:
        signal = re.fullmatch(r"xilinx\.com:signal:(\w+)_rtl:1\.0", kind)
        if kind not in KINDS or signal is None or signal[1] not in SIGNALS:
            raise Refused(f"nothing shows an interface of kind {kind}")
        if port not in self.ports or self.ports[port][0] != (signal[1] == "interrupt"):
            raise Refused(f"the core has no port {port} that could be a {signal[1]}")
        self.add_bus(port)
        self.buses[port].values |= {"abstraction_type_vlnv": kind}
        self.buses[port].maps["SIGNAL"] = port
        return f"core bus_interface {port}"

    def found(self, what: str, pattern: str) -> list[str]:
        names = {"bus_interface": self.buses, "port": self.ports, "memory_map": self.maps, "address_space": self.spaces}
        return [f"core {what} {name}" for name in names[what] if fnmatchcase(name, pattern)]

    def set(self, path: list[str], name: str, value: str) -> None:
        """Set a property that is known to exist."""
        if not path:
            self.values[name] = value
        elif path[0] == "address_space":
            self.spaces[path[1]] = int(value)
        elif path[0] == "memory_map":
            self.maps[path[1]][path[3]] = int(value)
        elif len(path) == 2:
            if name.endswith("_vlnv") and value.replace("aximm:", "aximm_rtl:") not in KINDS:
                raise Refused(f"nothing shows an interface of kind {value}")
            known = {"slave_memory_map_ref": self.maps, "master_address_space_ref": self.spaces}.get(name)
            if known is not None and value not in known:
                raise Refused(f"the core has no {value} that {name} could be")
            self.bus(path[1]).values[name] = value
        elif path[2] == "port_map":
            if value not in self.ports:
                raise Refused(f"the core has no port {value}")
            self.bus(path[1]).maps[path[3]] = value
        else:
            self.bus(path[1]).parameters[path[3]] = value

    def parameter(self, bus: str, name: str) -> str:
        if name not in PARAMETERS:
            raise Refused(f"nothing shows a parameter {name}")
        if name in self.bus(bus).parameters:
            raise Refused(f"{bus} has a parameter {name} already")
        self.bus(bus).parameters[name] = ""
        return f"core bus_interface {bus} bus_parameter {name}"

    def packaged(self) -> Packaged:
        """What a block design sees of it. Refuses a core that is not complete."""
        if not self.saved:
            raise Refused("the core was not saved")
        pins: dict[str, Pin] = {}
        interfaces: dict[str, Interface] = {}
        segments, spaces, maps, associated = {}, {}, {}, {}
        signals = {bus.maps["SIGNAL"]: bus for bus in self.buses.values() if "SIGNAL" in bus.maps}
        for port, bus in signals.items():
            kind = SIGNALS[bus.values["abstraction_type_vlnv"].split(":")[2].removesuffix("_rtl")]
            pins[port] = Pin(self.ports[port][0], kind, "")
            if kind == "clk":
                for each in bus.parameters.get("ASSOCIATED_BUSIF", "").split(":"):
                    self.bus(each)
                    associated[each] = port
                if bus.parameters.get("ASSOCIATED_RESET") not in signals:
                    raise Refused(f"clock {port} has no reset")
            if kind == "rst" and bus.parameters.get("POLARITY") != "ACTIVE_LOW":
                raise Refused(f"reset {port} is not said to be active low")
        for name, bus in self.buses.items():
            if "SIGNAL" in bus.maps:
                continue
            if name not in associated:
                raise Refused(f"interface {name} has no clock")
            master = bus.values.get("interface_mode") == "master"
            self._complete(name, bus, master)
            width = str(self.ports[bus.maps["RDATA"]][1])
            protocol = bus.parameters.get("PROTOCOL", "")
            interfaces[name] = Interface(master, "aximm_rtl", "", associated[name], protocol, width)
            maps[name] = bus.maps
            if master:
                space = bus.values.get("master_address_space_ref", "")
                if self.spaces.get(space) != 1 << self.ports[bus.maps["ARADDR"]][1]:
                    raise Refused(f"master {name} has no address space of its bits")
                spaces[space] = ("", name)
            else:
                for block, size in self.maps[bus.values.get("slave_memory_map_ref", "")].items():
                    if size > 1 << self.ports[bus.maps["ARADDR"]][1]:
                        raise Refused(f"{name} has too few address bits for {size} bytes")
                    segments[f"{name}/{block}"] = ("", name, size)
        left = self.ports.keys() - {port for bus in self.buses.values() for port in bus.maps.values()}
        if left:
            raise Refused(f"ports {sorted(left)} are in no interface")
        kind = Kind({}, {}, pins, interfaces, segments, spaces)
        return Packaged(self.vlnv, kind, self.ports, maps, associated)

    def _complete(self, name: str, bus: Bus, master: bool) -> None:
        """Refuse an interface without a signal that its protocol demands, or with one of another."""
        protocol = bus.parameters.get("PROTOCOL")
        if protocol not in ("AXI3", "AXI4", "AXI4LITE"):
            raise Refused(f"interface {name} has protocol {protocol}")
        channel = {
            "R": {"DATA": 0, "RESP": 0, "VALID": 0, "READY": 1},
            "W": {"DATA": 1, "STRB": 1, "VALID": 1, "READY": 0},
        }
        channel["B"] = {"RESP": 0, "VALID": 0, "READY": 1}
        for each in ("AR", "AW"):
            channel[each] = {"ADDR": 1, "PROT": 1, "VALID": 1, "READY": 0}
            if protocol != "AXI4LITE":
                channel[each] |= dict.fromkeys(("LEN", "SIZE", "BURST", "LOCK", "CACHE", "QOS"), 1)
        if protocol != "AXI4LITE":
            channel["R"]["LAST"], channel["W"]["LAST"] = 0, 1
        used = ["AR", "R"] + (["AW", "W", "B"] if "AWADDR" in bus.maps else [])
        wanted = {c + s: bool(out) == master for c in used for s, out in channel[c].items()}
        if wanted.keys() != bus.maps.keys():
            raise Refused(f"interface {name} ({protocol}): signals {sorted(wanted.keys() ^ bus.maps.keys())}")
        for logical, out in wanted.items():
            port = bus.maps[logical]
            if self.ports[port][0] != out:
                raise Refused(f"{port} of {name} has the wrong direction")
        bits = {"LEN": 4 if protocol == "AXI3" else 8, "LOCK": 2 if protocol == "AXI3" else 1, "QOS": 4, "CACHE": 4}
        bits |= {"SIZE": 3, "BURST": 2, "PROT": 3}
        for logical, port in bus.maps.items():
            if logical[:2] in ("AR", "AW") and self.ports[port][1] != bits.get(logical[2:], self.ports[port][1]):
                raise Refused(f"{port} has {self.ports[port][1]} bits, {protocol} has {bits[logical[2:]]}")
