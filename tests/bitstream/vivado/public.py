"""A public script through the stand-in's rules: what it says of an IP that the stand-in knows has to be allowed.

Other IPs, commands, properties and pins are let through. So a script that is known to build contradicts the tables, or does not.
"""

from __future__ import annotations

import re
import tkinter
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from .cells import CELLS
from .design import Cell, Design, Refused, Segment

ABSTRACTION = {"ddrx_rtl", "fixedio_rtl"}  # interfaces that leave the chip
SERVED = {  # commands of Vivado whose answers scripts look at
    "version", "create_bd_cell", "current_bd_instance", "get_bd_cells", "get_bd_pins", "get_bd_intf_pins", "get_bd_ports",
    "get_bd_intf_ports", "create_bd_port", "create_bd_intf_port", "create_bd_pin", "create_bd_intf_pin", "set_property",
    "get_property", "connect_bd_net", "connect_bd_intf_net", "get_bd_addr_spaces", "get_bd_addr_segs", "create_bd_addr_seg",
    "assign_bd_address", "get_ipdefs", "current_project",
}  # fmt: skip


class End(NamedTuple):
    """A pin or an interface pin: its cell, None for a port or a cell that the stand-in does not know."""

    cell: Cell | None
    name: str
    path: str


class Hierarchies(Design):
    """A block design whose cells may be in hierarchies, and have as many ports as they like."""

    def split(self, path: str) -> tuple[Cell, str]:
        name, _, rest = path.lstrip("/").rpartition("/")
        return self.cell(name), rest

    def set(self, name: str, property: str, value: str) -> None:
        if property.startswith("NUM_") and value.isdigit():
            self.cell(name).values[property] = value
        else:
            super().set(name, property, value)


class PublicScript:
    """One run of a script. ``checks`` counts the rules that were applied, ``refused`` has the statements that break one."""

    def __init__(self) -> None:
        self.checks: Counter[str] = Counter()
        self.refused: list[str] = []
        self.design = Hierarchies()
        self.foreign: set[str] = set()  # cells of other IPs, hierarchies
        self.external: dict[str, str] = {}  # interface ports: type
        self.instance = ""
        self.values: dict[str, set[str]] = {}  # of each IP: properties that were set
        self.error: BaseException | None = None

    def run(self, script: Path, version: str, prelude: str = "") -> None:
        """Source the script as that version of Vivado. ``prelude`` is Tcl that comes before."""
        self.release = version
        tcl = tkinter.Tcl()
        tcl.eval("proc unknown args { return {} }\nproc puts args {}\nproc exec args {}\nproc exit args { return {} }")
        for name in SERVED:
            tcl.createcommand(f"standin_{name}", self._called(tcl, name))
            tcl.eval(f"proc {name} args {{ return [standin_{name} {{*}}$args] }}")
        tcl.eval(prelude)
        try:
            tcl.call("source", str(script))
        except tkinter.TclError:
            raise self.error or RuntimeError(tcl.eval("set ::errorInfo")) from None

    def _called(self, tcl: tkinter.Tk, name: str) -> Callable[..., str]:
        method = getattr(self, name)

        def command(*words: str) -> str:
            try:
                return method(tcl, [str(word) for word in words]) or ""
            except Exception as error:  # tkinter only prints it
                self.error = self.error or error
                raise

        return command

    def _checked(self, rule: str, statement: str, check: Callable[[], None]) -> None:
        """Apply a rule of the stand-in."""
        self.checks[rule] += 1
        try:
            check()
        except Refused as refusal:
            self.refused.append(f"{statement}: {refusal}")

    # -- cells

    def version(self, tcl: tkinter.Tk, words: list[str]) -> str:
        return self.release

    def create_bd_cell(self, tcl: tkinter.Tk, words: list[str]) -> str:
        path = self._path(words[-1])
        vlnv = words[words.index("-vlnv") + 1] if "-vlnv" in words else ""
        name = vlnv.split(":")[2] if vlnv.count(":") >= 2 else ""
        if vlnv.startswith("xilinx.com:ip:") and name in CELLS:
            self.design.add(path, vlnv, CELLS[name], None)
            self.values.setdefault(name, set())
        else:
            self.foreign.add(path)
        return f"/{path}"

    def _path(self, name: str) -> str:
        if name.startswith("/"):
            return name[1:]
        return f"{self.instance}/{name}" if self.instance else name

    def current_bd_instance(self, tcl: tkinter.Tk, words: list[str]) -> str:
        if words and words[0] != ".":
            self.instance = words[0].strip("/")
        return f"/{self.instance}"

    def get_bd_cells(self, tcl: tkinter.Tk, words: list[str]) -> str:
        names = [word for word in words if not word.startswith("-")]
        if not names:
            return ""
        path = self._path(names[0])
        return f"/{path}" if path in self.design.cells or path in self.foreign or not path else ""

    def set_property(self, tcl: tkinter.Tk, words: list[str]) -> str:
        words = [word for word in words if word != "-quiet"]
        pairs = tcl.splitlist(words[words.index("-dict") + 1]) if "-dict" in words else words[:2]
        cell = self.design.cells.get(words[-1].strip("/"))
        for name, value in zip(pairs[::2], pairs[1::2]):
            short = name.removeprefix("CONFIG.")
            if cell is not None and short in cell.kind.properties:
                statement = f"{cell.name} {short} {value}"
                self._checked("property", statement, lambda n=short, v=value: self.design.set(cell.name, n, v))
        return ""

    def get_property(self, tcl: tkinter.Tk, words: list[str]) -> str:
        return "hier" if "TYPE" in words else words[-1]  # create_root_design asks whether its parent is a hierarchy

    # -- pins

    def _end(self, path: str) -> End:
        path = path.strip("/")
        cell, _, name = path.rpartition("/")
        return End(self.design.cells.get(cell), name, path)

    def _object(self, tcl: tkinter.Tk, words: list[str]) -> str:
        names = [word for word in words if not word.startswith("-")]
        return " ".join(f"/{self._path(each)}" for name in names[:1] for each in tcl.splitlist(name))

    get_bd_pins = get_bd_intf_pins = get_bd_addr_spaces = get_bd_addr_segs = _object

    def _port(self, tcl: tkinter.Tk, words: list[str]) -> str:
        names = [word for word in words if not word.startswith("-")]
        return f"/{names[-1]}" if names else ""

    get_bd_ports = get_bd_intf_ports = create_bd_port = create_bd_pin = create_bd_intf_pin = _port

    def create_bd_intf_port(self, tcl: tkinter.Tk, words: list[str]) -> str:
        self.external[words[-1]] = words[words.index("-vlnv") + 1].split(":")[2]
        return f"/{words[-1]}"

    def _ends(self, words: list[str], option: str) -> list[End]:
        if option in words:
            at = words.index(option)
            words = words[:at] + words[at + 2 :]
        return [self._end(path) for word in words for path in word.split()]

    def connect_bd_net(self, tcl: tkinter.Tk, words: list[str]) -> str:
        ends = self._ends(words, "-net")
        known = [end for end in ends if end.cell is not None and end.name in end.cell.kind.pins]
        pins = [(end, end.cell.pin(end.name)) for end in known if self._there(end)]
        drivers = [end for end, pin in pins if pin.out]
        if len(drivers) > 1:
            self.refused.append(f"{[end.path for end in drivers]} all drive one net")
        for sink, pin in pins:
            for driver in drivers:
                if not pin.out:
                    statement = f"{driver.path} to {sink.path}"
                    self._checked("net", statement, lambda a=driver, b=sink: self.design.connect(a.path, b.path))
        if len(drivers) == 1 and len(known) < len(ends):  # a clock of an unknown IP says nothing of its kind
            self.checks["driver"] += 1
        return ""

    def _there(self, end: End) -> bool:
        """Whether a pin exists with the properties that were set."""
        assert end.cell is not None
        self.checks["pin"] += 1
        try:
            end.cell.pin(end.name)
        except Refused as refusal:
            self.refused.append(str(refusal))
            return False
        return True

    def connect_bd_intf_net(self, tcl: tkinter.Tk, words: list[str]) -> str:
        ends = [end for end in self._ends(words, "-intf_net") if not end.path.startswith("-")]
        known = [end for end in ends if end.cell is not None and end.name in end.cell.kind.interfaces]
        for end in known:
            assert end.cell is not None
            self._checked("interface", end.path, lambda e=end: self._interface(e, [o for o in ends if o is not e]))
        if len(known) == 2:
            statement = " to ".join(end.path for end in known)
            self._checked("link", statement, lambda: self._attach(known))
        return ""

    def _interface(self, end: End, others: Sequence[End]) -> None:
        assert end.cell is not None
        interface = end.cell.interface(end.name)
        for other in others:
            if other.path in self.external and self.external[other.path] != interface.type:
                raise Refused(f"{end.path} is {interface.type}, the port is {self.external[other.path]}")

    def _attach(self, ends: Sequence[End]) -> None:
        self.design.attach(*(end.path for end in ends))
        one, two = ends
        assert one.cell is not None and two.cell is not None
        a, b = one.cell.interface(one.name), two.cell.interface(two.name)
        for what, x, y in (("protocol", a.protocol, b.protocol), ("width", one.cell.width(a), two.cell.width(b))):
            if "any" not in (x, y) and x != y:
                raise Refused(f"{one.path} has {what} {x}, {two.path} has {y}")

    # -- addresses

    def create_bd_addr_seg(self, tcl: tkinter.Tk, words: list[str]) -> str:
        values = {word: words[words.index(word) + 1] for word in ("-range", "-offset")}
        space, target = [word for word in words if word.startswith("/")][:2]
        self._segment(space, target, int(values["-offset"], 0), int(values["-range"], 0))
        return ""

    def assign_bd_address(self, tcl: tkinter.Tk, words: list[str]) -> str:
        if "-offset" in words and "-target_address_space" in words:
            space = words[words.index("-target_address_space") + 1]
            target = next(word for word in words if word.startswith("/") and word != space)
            offset, range = (int(words[words.index(word) + 1], 0) for word in ("-offset", "-range"))
            self._segment(space, target, offset, range)
        return ""

    def _segment(self, space: str, target: str, offset: int, range: int) -> None:
        """Check a piece of the map as ``Design.map`` does, but for its way through IPs that are not known."""
        space, target = space.strip("/"), target.strip("/")
        cell = next((c for name, c in self.design.cells.items() if target.startswith(f"{name}/")), None)
        segment = cell.kind.segments.get(target.removeprefix(f"{cell.name}/")) if cell else None
        bytes = segment[2] if segment else None
        others = [each for each in self.design.segments if each.space == space]
        statement = f"{target} at {offset:#x} of {space}"
        self._checked("address", statement, lambda: Design.fits(target, offset, range, bytes, others))
        self.design.segments.append(Segment(space, target, offset, range))

    # -- the rest

    def get_ipdefs(self, tcl: tkinter.Tk, words: list[str]) -> str:
        return words[-1]

    def current_project(self, tcl: tkinter.Tk, words: list[str]) -> str:
        return "project"


def scripts_version(script: Path) -> str:
    """Return the version of Vivado that a generated script asks for."""
    return re.findall(r"set scripts_vivado_version ([\d.]+)", script.read_text())[0]
