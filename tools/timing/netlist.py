"""A mapped netlist, as ``write_json`` of yosys has it: cells, and nets of one bit each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

CLOCKS = frozenset(
    {"C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK", "REGCLKARDREGCLK", "REGCLKB", "REGCLKARD"}
)  # pins that are no ends of paths


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell: its type, parameters, and the nets (a number each; constants are strings) of its pins."""

    name: str
    kind: str
    parameters: Mapping[str, str]
    inputs: Mapping[str, list[int | str]]
    outputs: Mapping[str, list[int | str]]

    def parameter(self, name: str) -> int | str | None:
        """Return a parameter as a number, if its text has only binary digits."""
        value = self.parameters.get(name)
        if value is None:
            return None
        return int(value, 2) if value and set(value) <= {"0", "1"} else value.strip()


@dataclass(frozen=True)
class Pin:
    """An input of a cell: one bit of a pin."""

    cell: Cell
    name: str
    index: int


class Netlist:
    """The cells of a module, and for each net its driver, its loads and a readable name."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        self.cells = [read(name, cell) for name, cell in module["cells"].items()]
        self.drivers: dict[int, tuple[Cell, str]] = {}
        self.loads: dict[int, list[Pin]] = defaultdict(list)
        for cell in self.cells:
            for pin, bits in cell.outputs.items():
                self.drivers.update((bit, (cell, pin)) for bit in bits if isinstance(bit, int))
            for pin, index, bit in input_bits(cell):
                self.loads[bit].append(Pin(cell, pin, index))
        self.fan_out = Counter({bit: len(loads) for bit, loads in self.loads.items()})
        self._names = named(module["netnames"])

    def name(self, bit: int) -> str:
        """Return a net's name in the source, or its number."""
        return self._names.get(bit, f"net {bit}")

    def end(self, pin: Pin) -> str:
        """Return the name of the register or memory that a path ends in."""
        outputs = pin.cell.outputs.get("Q", [])
        if outputs and isinstance(outputs[0], int):
            return self.name(outputs[0])
        return pin.cell.name.split("$")[0].strip(".") or pin.cell.name

    def places(self) -> Iterator[tuple[Cell, str]]:
        """Yield each cell with the name of what it is or leads to: a memory, or the first register that has one."""
        names: dict[Cell, str] = {}

        def of(cell: Cell) -> str:
            if cell not in names:
                names[cell] = ""  # in a loop of nameless ones
                nets = [bit for bits in cell.outputs.values() for bit in bits if isinstance(bit, int)]
                own = (name for name in (cell.name, *map(self.name, nets)) if not name.startswith(("$", "net ")))
                loads = (of(load.cell) for net in nets for load in self.loads.get(net, []))
                names[cell] = next(own, "") or next(filter(None, loads), "")
            return names[cell]

        yield from ((cell, of(cell)) for cell in self.cells)


def read(name: str, cell: Mapping[str, Any]) -> Cell:
    """Return a cell of the JSON."""
    pins: dict[str, dict[str, list[int | str]]] = {"input": {}, "output": {}}
    for pin, bits in cell["connections"].items():
        pins[cell["port_directions"][pin]][pin] = bits
    return Cell(name, cell["type"], cell["parameters"], pins["input"], pins["output"])


def input_bits(cell: Cell) -> Iterator[tuple[str, int, int]]:
    """Yield (pin, index, net) of a cell's inputs that have nets, clocks apart."""
    for pin, bits in cell.inputs.items():
        if pin not in CLOCKS:
            for index, bit in enumerate(bits):
                if isinstance(bit, int):
                    yield pin, index, bit


def named(netnames: Mapping[str, Any]) -> dict[int, str]:
    """Return a name for each net: the shortest of the source, or else one that yosys made."""
    names: dict[int, tuple[bool, int, str]] = {}
    for name, net in netnames.items():
        for index, bit in enumerate(net["bits"]):
            if isinstance(bit, int):
                full = f"{name}[{index}]" if len(net["bits"]) > 1 else name
                rank = "$" in name, len(full), full
                names[bit] = min(names.get(bit, rank), rank)
    return {bit: name for bit, (_, _, name) in names.items()}
