"""The paths of a netlist in figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from . import delays
from .cells import DSPS, REGISTERS, RESETS
from .memories import ReadPort, read_ports
from .netlist import Cell, Netlist
from .paths import End, Levels, Paths, Way

SCALES = 0.5, 0.7, 1.0  # of the nets' delays
AIM = 7.5  # ns at the middle scale
DEEP = 6  # levels
LUTS, CHAINS = 3, 1  # of a path that is shallow
FAN_OUT = 512  # of a reset
DSP_REGISTERS = ("AREG", "BREG", "CREG", "DREG", "ADREG", "MREG", "PREG")

# registers that change once a Task or a chain (descriptors, their tags, the planner's division, what begins a Task, causes of
# errors), or for an access to the registers: nothing waits for them
ONCE = (
    *("array.planner.", "window__ready", "bus__rdata", "control.fetch.", "control.array_tags", "control.window_tags"),
    *("control.w_rdy", "control.fsm_state", "control.settle", "control.all_", "control.cause", "control.dead"),
    *("control.fault_", "control.ERROR", "control.IRQ", "control.CHAIN", "control.COUNT", "control.CONTROL"),
    *("array.task_", "array.loader_0.start", "array.loader_1.start", "array.constants.start"),
)


@dataclass(frozen=True)
class Path:
    """A path: its time, its ways, and where it ends."""

    time: float
    ways: tuple[Way, ...]
    end: End


class Summary:
    """The figures of a netlist; times are those of the 7-series and mean nothing for another family."""

    def __init__(self, netlist: Netlist) -> None:
        self.netlist, self.paths = netlist, Paths(netlist)
        self.levels = self.paths.levels()
        self.ends = [end for end in self.paths.ends if end.net in self.levels]

    def level(self, end: End) -> Levels:
        """Return the levels before an end."""
        return self.levels[end.net]

    def name(self, end: End) -> str:
        """Return the name of what a path ends in."""
        return self.netlist.end(end.pin)

    @cached_property
    def by_levels(self) -> Counter[tuple[int, int]]:
        """Return how many ends have so many (look-up tables, carry chains) before them, at most."""
        return Counter((self.level(end).luts, self.level(end).chains) for end in self.ends)

    @cached_property
    def deep(self) -> list[End]:
        """Return the ends with more than ``DEEP`` levels."""
        return [end for end in self.ends if self.level(end).all > DEEP]

    @cached_property
    def beyond(self) -> list[End]:
        """Return the ends with more than ``LUTS`` look-up tables or ``CHAINS`` carry chains."""
        return [end for end in self.ends if self.level(end).luts > LUTS or self.level(end).chains > CHAINS]

    def is_once(self, end: End) -> bool:
        """Return whether an end works once a Task or register access."""
        return self.name(end).startswith(ONCE)

    def times(self, scale: float) -> list[tuple[float, End]]:
        """Return all ends with the time of their slowest path, slowest first."""
        arrivals, _ = self.paths.arrivals(scale)
        times = [(arrivals[end.net] + scale * end.wire + end.setup + delays.CLOCK, end) for end in self.ends]
        return sorted(times, key=lambda pair: -pair[0])

    def slowest(self, scale: float, count: int) -> Iterator[Path]:
        """Yield the slowest paths, one for each pair of names that they begin and end with."""
        _, last = self.paths.arrivals(scale)
        seen = set()
        for time, end in self.times(scale):
            ways: list[Way] = []
            net = end.net
            while net in last:
                ways.append(last[net])
                net = last[net].source
            pair = plain(self.netlist.name(net)), plain(self.name(end))
            if pair not in seen:
                seen.add(pair)
                yield Path(time, tuple(reversed(ways)), end)
            if len(seen) == count:
                break

    @cached_property
    def resets(self) -> list[tuple[int, str, str]]:
        """Return (pins, net, type of the driver) of nets that reset registers, most pins first."""
        pins: Counter[int] = Counter()
        for net, loads in self.netlist.loads.items():
            pins[net] = sum(load.name in RESETS and load.cell.kind in REGISTERS for load in loads)
        return [
            (count, self.netlist.name(net), driver_of(self.netlist, net)) for net, count in pins.most_common() if count
        ]

    @cached_property
    def ports(self) -> list[ReadPort]:
        """Return the read ports of block RAMs."""
        return list(read_ports(self.netlist))

    @cached_property
    def dsps(self) -> Counter[tuple[str, ...]]:
        """Return how many DSPs have which registers."""
        return Counter(registers(self.netlist, cell) for cell in self.netlist.cells if cell.kind in DSPS)

    @cached_property
    def figures(self) -> Mapping[str, float]:
        """Return the figures that have goals."""
        slow = self.times(SCALES[1])
        return {
            "ends": len(self.ends),
            "slow": sum(time > AIM for time, _ in slow),
            "deep": len(self.deep),
            "deepest": max((self.level(end).all for end in self.ends), default=0),
            "beyond": len(self.beyond),
            "beyond in work": sum(not self.is_once(end) for end in self.beyond),
            "reset pins": max((count for count, *_ in self.resets), default=0),
            "read ports": len(self.ports),
            "read ports without register": sum(not port.registers for port in self.ports),
        }


def plain(name: str) -> str:
    """Return a name without the number of its bit."""
    return name.split("[")[0]


def driver_of(netlist: Netlist, net: int) -> str:
    """Return the type of the cell that drives a net."""
    return netlist.drivers[net][0].kind if net in netlist.drivers else "a port"


def registers(netlist: Netlist, cell: Cell) -> tuple[str, ...]:
    """Return the registers of a DSP, and "A before" if its A comes from registers outside."""
    own = tuple(f"{name} {cell.parameter(name) or 0}" for name in DSP_REGISTERS)
    nets = [bit for bit in cell.inputs.get("A", []) if isinstance(bit, int)]
    before = not cell.parameter("AREG") and all(driver_of(netlist, net) in REGISTERS for net in nets)
    return (*own, "A from registers") if nets and before else own
