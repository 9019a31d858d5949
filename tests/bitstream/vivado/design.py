"""The block design as a graph: cells, nets of pins, connected interfaces and the address map. It refuses what cannot be built."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .cells import CELLS, Interface, Kind, Pin


class Refused(Exception):
    """What Vivado would not do, or what nothing shows that it does."""


@dataclass
class Packaged:
    """An IP that was packaged: its name and what a block design sees of it."""

    vlnv: str
    kind: Kind
    ports: Mapping[str, tuple[bool, int]]  # every port of the module: whether it is an output, bits
    maps: Mapping[str, Mapping[str, str]]  # of each interface: logical name to port
    associated: Mapping[str, str]  # clock of each interface


@dataclass
class Cell:
    name: str
    vlnv: str
    kind: Kind
    packaged: Packaged | None = None
    values: dict[str, str] = field(default_factory=dict)

    def value(self, name: str) -> str:
        return self.values.get(name, self.kind.properties[name][2])

    def _there(self, needs: str) -> bool:
        name, _, more = needs.partition(">")
        return not needs or (int(self.value(name)) > int(more or 0))

    def pin(self, name: str) -> Pin:
        pin = self.kind.pins.get(name)
        if pin is None or not self._there(pin.needs):
            raise Refused(f"cell {self.name} ({self.vlnv}) has no pin {name}")
        return pin

    def interface(self, name: str) -> Interface:
        interface = self.kind.interfaces.get(name)
        if interface is None or not self._there(interface.needs):
            raise Refused(f"cell {self.name} ({self.vlnv}) has no interface pin {name}")
        return interface

    def pins(self) -> dict[str, Pin]:
        return {name: pin for name, pin in self.kind.pins.items() if self._there(pin.needs)}

    def interfaces(self) -> dict[str, Interface]:
        return {name: each for name, each in self.kind.interfaces.items() if self._there(each.needs)}

    def width(self, interface: Interface) -> str:
        return self.value(interface.width) if interface.width in self.kind.properties else interface.width


@dataclass
class Segment:
    """A piece of the map of an address space."""

    space: str  # CELL/SPACE
    target: str  # CELL/INTERFACE/SEGMENT
    offset: int
    range: int


class Design:
    """One block design."""

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}
        self.ports: dict[str, str] = {}  # external interfaces: type
        self.net: dict[str, str] = {}  # driver of each connected input pin
        self.link: dict[str, str] = {}  # both ends of each interface connection
        self.segments: list[Segment] = []
        self.automated = False  # DDR and FIXED_IO were made external by a rule
        self.valid = False

    def cell(self, name: str) -> Cell:
        if name not in self.cells:
            raise Refused(f"there is no cell {name}")
        return self.cells[name]

    def split(self, path: str) -> tuple[Cell, str]:
        name, slash, rest = path.lstrip("/").partition("/")
        if not slash:
            raise Refused(f"{path} is no pin of a cell")
        return self.cell(name), rest

    def add(self, name: str, vlnv: str, kind: Kind, packaged: Packaged | None) -> None:
        if name in self.cells:
            raise Refused(f"there is a cell {name} already")
        self.cells[name] = Cell(name, vlnv, kind, packaged)

    def set(self, name: str, property: str, value: str) -> None:
        cell = self.cell(name)
        known = cell.kind.properties.get(property)
        if known is None:
            raise Refused(f"cell {name} ({cell.vlnv}) has no property CONFIG.{property}")
        allowed = re.findall(r"\{([^}]*)\}|(\S+)", known[1])
        values = [braced or plain for braced, plain in allowed]
        if values and value not in (*values, known[2]):
            raise Refused(f"CONFIG.{property} of {name} is one of {values}, not {value!r}")
        if not values and not re.fullmatch(r"\d+(\.\d+)?", value):
            raise Refused(f"CONFIG.{property} of {name} is a number, not {value!r}")
        cell.values[property] = value
        self.valid = False

    def connect(self, one: str, other: str) -> None:
        """Connect two pins, of which one drives."""
        ends = []
        for path in (one, other):
            cell, name = self.split(path)
            ends.append((cell.pin(name), f"{cell.name}/{name}"))
        drivers = [end for end in ends if end[0].out]
        sinks = [end for end in ends if not end[0].out]
        if len(drivers) != 1 or len(sinks) != 1:
            raise Refused(f"{one} and {other}: one pin has to drive and one to be driven")
        (source, driver), (sink, driven) = drivers[0], sinks[0]
        if source.kind != sink.kind:
            raise Refused(f"{driver} is {source.kind or 'data'}, {driven} is {sink.kind or 'data'}")
        if driven in self.net:
            raise Refused(f"{driven} is driven by {self.net[driven]} already")
        self.net[driven] = driver
        self.valid = False

    def attach(self, one: str, other: str) -> None:
        """Connect two interfaces: a master and a slave, or an external port and a pin."""
        paths = [path.lstrip("/") for path in (one, other)]
        for path in paths:
            if path in self.link:
                raise Refused(f"{path} is connected to {self.link[path]} already")
        types, masters = [], []
        for path in paths:
            if "/" in path:
                cell, name = self.split(path)
                interface = cell.interface(name)
                types.append(interface.type)
                masters.append(interface.master)
            elif path in self.ports:
                types.append(self.ports[path])
                masters.append(None)
            else:
                raise Refused(f"there is no interface {path}")
        if types[0] != types[1]:
            raise Refused(f"{one} is {types[0]}, {other} is {types[1]}")
        if None not in masters and masters[0] == masters[1]:
            raise Refused(f"{one} and {other} are both {'masters' if masters[0] else 'slaves'}")
        self.link[paths[0]], self.link[paths[1]] = paths[1], paths[0]
        self.valid = False

    # -- addresses

    def targets(self, cell: Cell, interface: str) -> Iterator[tuple[Cell, str]]:
        """Slaves that a master reaches, through interconnects."""
        end = self.link.get(f"{cell.name}/{interface}")
        if end is None or "/" not in end:
            return
        other, name = self.split(end)
        if other.kind is CELLS["axi_interconnect"]:
            for each, about in other.interfaces().items():
                if about.master:
                    yield from self.targets(other, each)
        else:
            yield other, name

    def map(self, space: str, target: str, offset: int, range: int) -> None:
        master, name = self.split(space)
        slave, segment = self.split(target)
        if name not in master.kind.spaces:
            raise Refused(f"{master.name} has no address space {name}")
        if segment not in slave.kind.segments:
            raise Refused(f"{slave.name} has no address segment {segment}")
        _, interface, bytes = slave.kind.segments[segment]
        if (slave.name, interface) not in [(c.name, i) for c, i in self.targets(master, master.kind.spaces[name][1])]:
            raise Refused(f"{space} does not reach {target}")
        self.fits(target, offset, range, bytes, [each for each in self.segments if each.space == space])
        self.segments.append(Segment(space, target, offset, range))
        self.valid = False

    @staticmethod
    def fits(target: str, offset: int, range: int, bytes: int | None, others: Sequence[Segment]) -> None:
        """Refuse a piece of an address space that is no aligned power of two, larger than its target or over another one."""
        if range & (range - 1) or range < 4096 or offset % range:
            raise Refused(
                f"{target}: a range of {range:#x} at {offset:#x} is no aligned power of two of 4096 bytes or more"
            )
        if bytes is not None and range > bytes:
            raise Refused(f"{target} has {bytes:#x} bytes, not {range:#x}")
        for other in others:
            if offset < other.offset + other.range and other.offset < offset + range:
                raise Refused(f"{target} at {offset:#x} overlaps {other.target} at {other.offset:#x}")

    # -- the whole

    def mhz(self) -> float:
        """What the processor makes of the frequency that is asked for: its PLL, divided by the nearest whole number."""
        for cell in self.cells.values():
            for name, pll in (("PCW_FPGA0_PERIPHERAL_FREQMHZ", 1000), ("PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ", 1500)):
                if name in cell.kind.properties:
                    return pll / round(pll / float(cell.value(name)))
        raise Refused("there is no processor")

    def clock(self, path: str) -> str:
        """The pin that drives a clock pin."""
        return self.net.get(path, "")

    def validate(self) -> None:
        """Refuse a design that cannot be built or would not work."""
        for cell in self.cells.values():
            for name, pin in cell.pins().items():
                path = f"{cell.name}/{name}"
                if not pin.out and path not in self.net:
                    raise Refused(f"{'clock ' if pin.kind == 'clk' else ''}pin {path} is not connected")
            for name, interface in cell.interfaces().items():
                path = f"{cell.name}/{name}"
                if interface.type in ("ddrx_rtl", "fixedio_rtl") and self.automated:
                    continue
                if path not in self.link:
                    raise Refused(f"interface {path} is not connected")
        for path, end in self.link.items():
            if "/" in path and "/" in end:
                self._like(path, end)
        for pin in ("intr", "irq"):
            if not any(path.split("/")[1] == pin or d.split("/")[1] == pin for path, d in self.net.items()):
                raise Refused(f"no {pin} of an interrupt controller is connected")
        mapped = {(segment.space, segment.target) for segment in self.segments}
        for cell in self.cells.values():
            for name, (_, interface) in cell.kind.spaces.items():
                for slave, end in self.targets(cell, interface):
                    wanted = [s for s, (_, i, _) in slave.kind.segments.items() if i == end]
                    if not any((f"{cell.name}/{name}", f"{slave.name}/{s}") in mapped for s in wanted):
                        raise Refused(f"{slave.name}/{end} is not in the map of {cell.name}/{name}")
        self.valid = True

    def _like(self, path: str, end: str) -> None:
        (cell, name), (other, other_name) = self.split(path), self.split(end)
        one, two = cell.interface(name), other.interface(other_name)
        clocks = [self.clock(f"{c.name}/{i.clock}") for c, i in ((cell, one), (other, two))]
        if one.type == "aximm_rtl" and clocks[0] != clocks[1]:
            raise Refused(f"{path} has clock {clocks[0]}, {end} has {clocks[1]}")
        for what, a, b in (
            ("protocol", one.protocol, two.protocol),
            ("width", cell.width(one), other.width(two)),
        ):
            if "any" not in (a, b) and a != b:
                raise Refused(f"{path} has {what} {a}, {end} has {b}")
