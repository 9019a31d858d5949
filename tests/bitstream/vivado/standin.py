"""Tcl in which Vivado's commands are those of ``known.py``: any other command, option, property or object is refused."""

from __future__ import annotations

import re
import tkinter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from .cells import CELLS
from .design import Design, Packaged, Refused
from .handoff import handoff
from .known import COMMANDS, KINDS, PROPERTIES, RULES
from .packager import Core, ports

PARTS = {"xc7z020clg400-1", "xc7z020clg484-1", "xczu3eg-sbva484-1-e", "xczu3eg-sbva484-1-i", "xck26-sfvc784-2LV-c",
         "xczu9eg-ffvb1156-2-e", "xczu7ev-ffvc1156-2-e"}  # fmt: skip
BOARDS = ("xilinx.com:zcu104:part0:1.0", "xilinx.com:zcu104:part0:1.1", "xilinx.com:zcu102:part0:3.3",
          "avnet.com:ultra96v1:part0:1.2", "avnet.com:ultra96v2:part0:1.2", "xilinx.com:kv260_som:part0:1.3",
          "xilinx.com:zc702:part0:1.4")  # fmt: skip
OLD = {
    "axi_interconnect": "1.7",
    "processing_system7": "5.4",
}  # versions of an upgraded catalogue, which a filter leaves out
Answer = str | tuple[str, ...]  # what Tcl gets: text, or a list
STEPS = ["synth_design", "opt_design", "place_design", "phys_opt_design", "route_design"]


class Vivado:
    """One session of Vivado. ``run`` sources a script; ``design`` is then the block design, ``bit`` what becomes a bitstream."""

    def __init__(
        self,
        version: str = "2024.2",
        boards: Sequence[str] = BOARDS,
        slack: tuple[float, float] = (0.2, 0.05),
        bit: bytes = b"bitstream",
        stretch: float = 1.0,
    ) -> None:
        self.version, self.boards, self.slack, self.bit, self.stretch = version, boards, slack, bit, stretch
        self.said: list[str] = []
        self.folder = Path()  # of the project that is open
        self.project = self.part = self.top = ""
        self.files: list[str] = []
        self.repository: Path | None = None
        self.packages: dict[Path, Core] = {}
        self.catalogue: dict[str, Packaged] = {}
        self.core: Core | None = None
        self.design: Design | None = None
        self.saved = self.wrapped = self.open = False
        self.runs: dict[str, dict[str, str]] = {"synth_1": {}, "impl_1": {}}
        self.done: list[str] = []
        self.alone: list[str] = []  # steps of the accelerator alone
        self.period: float | None = None
        self._error: BaseException | None = None

    def run(self, script: Path) -> None:
        """Source a script. Raises Refused, or TclError for an error of Tcl or of the script."""
        tcl = tkinter.Tcl()
        tcl.eval("namespace eval ipx {}")
        for name in COMMANDS:
            tcl.createcommand(f"standin_{name.replace('::', '_')}", self._called(tcl, name))
            tcl.eval(
                f"proc {name} args {{ lassign [standin_{name.replace('::', '_')} {{*}}$args] failed value\n"
                "  if {$failed} { error $value }\n  return $value }"
            )
        tcl.createcommand("standin_said", self._say)
        tcl.eval("rename puts standin_puts\nproc puts args { standin_said [lindex $args end] }")
        tcl.eval("proc exec args { error {a script starts no programs} }")
        try:
            tcl.call("source", str(script))
        except tkinter.TclError:
            if self._error is not None:
                raise self._error from None
            raise

    def _say(self, text: str) -> None:
        self.said.append(text)

    def _called(self, tcl: tkinter.Tk, name: str) -> Callable[..., tuple[str, Answer]]:
        """The command, with its options checked. A refusal becomes an error of Tcl, and is raised at the end."""
        known = COMMANDS[name]
        values, flags = known.values.split(), known.flags.split()
        method = getattr(self, name.replace("::", "_"))

        def command(*words: str) -> tuple[str, Answer]:
            options: dict[str, str] = {}
            rest: list[str] = []
            left = [str(word) for word in words]
            try:
                while left:
                    word = left.pop(0)
                    if word in values and left:
                        options[word[1:]] = left.pop(0)
                    elif word in flags:
                        options[word[1:]] = "1"
                    elif re.match(r"-[a-z]", word):
                        raise Refused(f"{name} has no option {word}")
                    else:
                        rest.append(word)
                if not known.least <= len(rest) <= known.most:
                    raise Refused(f"{name} takes {known.least} to {known.most} arguments, not {len(rest)}")
                answer = method(tcl, rest, options)
                return "0", answer or ""
            except Refused as refusal:
                self._error = refusal
                return "1", f"{name}: {refusal}"

        return command

    # -- project

    def create_project(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if options.get("part") not in PARTS:
            raise Refused(f"there is no part {options.get('part')}")
        if self.project:
            raise Refused("a project is open")
        if not words and "in_memory" not in options:
            raise Refused("a project on disk needs a name")
        self.part, self.project = options["part"], words[0] if words else "memory"
        self.folder = Path(words[1]) if len(words) > 1 else Path()
        if len(words) > 1:
            self.folder.mkdir(parents=True, exist_ok=True)
        self.files, self.top, self.repository = [], "", None
        return ""

    def close_project(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self.project = ""
        return ""

    def current_project(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._opened()
        return "project"

    def current_fileset(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._opened()
        return "fileset"

    def _opened(self) -> None:
        if not self.project:
            raise Refused("no project is open")

    def get_board_parts(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return " ".join(self.boards)

    def add_files(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._opened()
        for name in tcl.splitlist(words[0]):
            if not Path(name).is_file():
                raise Refused(f"there is no file {name}")
            self.files.append(name)
        return ""

    def update_compile_order(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return ""

    def update_ip_catalog(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if self.repository is not None:
            if self.repository not in self.packages:
                raise Refused(f"there is no IP in {self.repository}")
            core = self.packages[self.repository]
            self.catalogue[core.vlnv] = core.packaged()
        return ""

    def get_ipdefs(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        entries = []
        for name, kind in CELLS.items():
            for version, upgrade in ((OLD.get(name), "new"), (kind.versions[self.version], "")):
                if version:
                    vlnv = f"xilinx.com:ip:{name}:{version}"
                    entries.append({"VLNV": vlnv, "design_tool_contexts": "HDL IPI", "UPGRADE_VERSIONS": upgrade})
        return " ".join(f"ipdef/{each['VLNV']}" for each in entries if matches(options.get("filter", ""), each))

    def get_files(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if words[0] != "chai.bd" or self.design is None:
            raise Refused(f"there is no file {words[0]}")
        return f"file/{words[0]}"

    # -- properties

    def set_property(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        pairs = tcl.splitlist(options["dict"]) if "dict" in options else tuple(words[:2])
        target = words[-1]
        if len(words) != (1 if "dict" in options else 3) or len(pairs) % 2 or not target:
            raise Refused("properties are pairs of a name and a value, of an object that is there")
        for name, value in zip(pairs[::2], pairs[1::2]):
            self._set(target, name, value)
        return ""

    def _set(self, target: str, name: str, value: str) -> None:
        if target.startswith("/"):
            if not name.startswith("CONFIG."):
                raise Refused(f"a cell has no property {name}")
            self._design().set(target[1:], name.removeprefix("CONFIG."), value)
            return
        path = target.split()
        kind = {"core": path[-2] if len(path) > 1 else "core"}.get(path[0], path[0].split("/")[0])
        known = PROPERTIES.get(kind, {}).get(name.lower())
        if known is None:
            raise Refused(f"{target} has no property {name}")
        allowed = [a or b for a, b in re.findall(r"\{([^}]*)\}|(\S+)", known[1])]
        if allowed and value not in allowed:
            raise Refused(f"{name} of {target} is one of {allowed}, not {value!r}")
        if kind == "project" and name.lower() == "board_part" and value not in self.boards:
            raise Refused(f"there is no board part {value}")
        if name.lower() == "ip_repo_paths":
            self.repository = Path(value)
        elif name.lower() == "top":
            self.top = value
        elif kind == "run":
            self.runs[path[0].split("/")[1]][name] = value
        elif path[0] == "core":
            self._core().set(path[1:], name.lower(), value)

    def get_property(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        name, target = words
        targets = target.split() if target.startswith("ipdef/") else [target]
        answers = {
            ("VLNV", "ipdef"): lambda each: each.split("/")[1],
            ("NAME", "core port"): lambda each: each.split()[-1],
            ("PERIOD", "clock"): lambda each: f"{self._period():.3f}",
            ("SLACK", "path"): lambda each: str(self.slack[each == "path/hold"]),
        }
        for (known, kind), answer in answers.items():
            if name == known and targets and all(each.startswith(kind) for each in targets):
                return " ".join(answer(each) for each in targets)
        raise Refused(f"{target or 'nothing'} has no property {name}")

    # -- runs

    def get_runs(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if words[0] not in self.runs:
            raise Refused(f"there is no run {words[0]}")
        return f"run/{words[0]}"

    def make_wrapper(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if not (self._design().valid and self.saved):
            raise Refused("the block design was not saved and validated since it was changed")
        if options.get("files") != "file/chai.bd" or not {"import", "top"} <= options.keys():
            raise Refused("the wrapper of the block design is imported as the top")
        self.wrapped = True
        return ""

    def launch_runs(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        run = self.get_runs(tcl, words, {}).split("/")[1]
        if not self.wrapped or self.top != "chai_wrapper":
            raise Refused(f"the project has no top that is its wrapper: {self.top!r}")
        if run == "impl_1":
            if options.get("to_step") != "write_bitstream":
                raise Refused("the run does not write a bitstream")
            for path, content in (
                (f"{self.project}.runs/impl_1/chai_wrapper.bit", self.bit),
                (self._handoff(), handoff(self._design(), self.part, self.version)),
            ):
                file = self.folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        self.done.append(run)
        return ""

    def _handoff(self) -> str:
        """Where the handoff is: versions from 2020.2 on have it in a folder of their own."""
        return f"{self.project}.{'srcs' if self.version == '2020.1' else 'gen'}/sources_1/bd/chai/hw_handoff/chai.hwh"

    def wait_on_run(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if words[0] not in self.done:
            raise Refused(f"{words[0]} was not launched")
        return ""

    def open_run(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self.wait_on_run(tcl, words, {})
        self.open = True
        return "design_1"

    def _routed(self) -> None:
        if not self.open and "route_design" not in self.alone:
            raise Refused("no routed design is open")

    def _report(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._routed()
        Path(options["file"]).write_text("report\n")
        return ""

    report_timing_summary = report_utilization = _report

    def check_timing(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._routed()
        if options.get("override_defaults") != "no_clock":
            raise Refused("nothing shows another check")
        return "There are 0 register/latch pins with no clock."

    def get_timing_paths(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._routed()
        return "path/hold" if "hold" in options else "path/setup"

    def get_pins(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._routed()
        names = [f"chai_i/{path}" for path in self._design().net]
        return " ".join(n for n in names if matches(options["filter"], {"NAME": n}))

    def get_ports(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if not any(words[0] in ports(Path(f).read_text(), "chai_array") for f in self.files if "core" not in f):
            raise Refused(f"there is no port {words[0]}")
        return words[0]

    def get_clocks(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        pins = options["of_objects"].split()
        if self.alone:
            return "clock/aclk" if self.period and pins == ["aclk"] else ""
        drivers = {self._design().clock(pin.removeprefix("chai_i/")) for pin in pins}
        return " ".join(f"clock/{each}" for each in sorted(drivers) if each)

    def _period(self) -> float:
        """Of the accelerator's clock: the PLL of the processor, divided by the nearest whole number."""
        if self.alone:
            return self.period or 0
        return 1000 / self._design().mhz() * self.stretch

    # -- the accelerator alone

    def read_verilog(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return self.add_files(tcl, words, options)

    def read_xdc(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        tcl.call("source", words[0])
        return ""

    def create_clock(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self.period = float(options["period"])
        return ""

    def _step(self, name: str) -> Callable[..., str]:
        def step(tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
            if STEPS.index(name) != len(self.alone):
                raise Refused(f"{name} comes after {STEPS[STEPS.index(name) - 1]}, not after {self.alone[-1:]}")
            if name == "synth_design":
                if options.get("mode") != "out_of_context" or options.get("part") not in PARTS:
                    raise Refused("the accelerator alone is synthesised out of context, for a part")
                if not any(f"module {options.get('top')} (" in Path(f).read_text() for f in self.files):
                    raise Refused(f"there is no module {options.get('top')}")
            self.alone.append(name)
            return ""

        return step

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name in STEPS:
            return self._step(name)
        raise AttributeError(name)

    def write_checkpoint(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._routed()
        return ""

    # -- packaging

    def _core(self) -> Core:
        if self.core is None:
            raise Refused("no core is packaged")
        return self.core

    def ipx_package_project(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        text = "".join(Path(name).read_text() for name in self.files)
        if "import_files" not in options:
            raise Refused("without -import_files the IP points out of its folder")
        self.core = Core(options["vendor"], options["library"], self.top, ports(text, self.top))
        self.packages[Path(options["root_dir"])] = self.core
        return ""

    def ipx_current_core(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._core()
        return "core"

    def ipx_remove_all_bus_interface(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._core().buses.clear()
        return ""

    def ipx_get_memory_maps(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> Answer:
        return self._objects("memory_map", words[0])

    def _objects(self, what: str, pattern: str) -> Answer:
        """Objects of the core: one by itself, or a list of those that a pattern fits."""
        objects = self._core().found(what, pattern)
        return tuple(objects) if "*" in pattern else "".join(objects)

    def ipx_remove_memory_map(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if self._core().maps.pop(words[0], None) is None:
            raise Refused(f"there is no memory map {words[0]}")
        return ""

    def ipx_add_bus_interface(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return self._core().add_bus(words[0])

    def ipx_get_bus_interfaces(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> Answer:
        return self._objects("bus_interface", words[0])

    def ipx_get_address_spaces(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> Answer:
        return self._objects("address_space", words[0])

    def ipx_get_ports(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> Answer:
        return self._objects("port", words[0])

    def ipx_add_port_map(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        logical, bus = words[0], words[1].split()[-1]
        if logical in self._core().bus(bus).maps:
            raise Refused(f"{bus} has a {logical} already")
        self._core().bus(bus).maps[logical] = ""
        return f"core bus_interface {bus} port_map {logical}"

    def ipx_infer_bus_interface(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return self._core().infer(words[0], words[1])

    def ipx_add_bus_parameter(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if not words[1]:
            raise Refused("there is no such interface")
        return self._core().parameter(words[1].split()[-1], words[0])

    def ipx_get_bus_parameters(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if not options["of_objects"]:
            raise Refused("there is no such interface")
        bus = options["of_objects"].split()[-1]
        there = words[0] in self._core().bus(bus).parameters
        return f"core bus_interface {bus} bus_parameter {words[0]}" if there else ""

    def ipx_add_memory_map(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if words[0] in self._core().maps:
            raise Refused(f"there is a memory map {words[0]} already")
        self._core().maps[words[0]] = {}
        return f"core memory_map {words[0]}"

    def ipx_add_address_block(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._core().maps[words[1].split()[-1]][words[0]] = 0
        return f"{words[1]} address_block {words[0]}"

    def ipx_get_address_blocks(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        name = options["of_objects"].split()[-1]
        if words[0] not in self._core().maps[name]:
            raise Refused(f"there is no address block {words[0]}")
        return f"core memory_map {name} address_block {words[0]}"

    def ipx_add_address_space(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if words[0] in self._core().spaces:
            raise Refused(f"there is an address space {words[0]} already")
        self._core().spaces[words[0]] = 0
        return f"core address_space {words[0]}"

    def ipx_create_xgui_files(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return ""

    ipx_update_checksums = ipx_create_xgui_files

    def ipx_save_core(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._core().saved = True
        return ""

    # -- block design

    def _design(self) -> Design:
        if self.design is None:
            raise Refused("there is no block design")
        return self.design

    def create_bd_design(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._opened()
        self.design = Design()
        return words[0]

    def create_bd_cell(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        vlnv = options.get("vlnv", "")
        name = vlnv.split(":")[2] if vlnv.count(":") == 3 else ""
        own = self.catalogue.get(vlnv)
        if own is None and (name not in CELLS or vlnv != f"xilinx.com:ip:{name}:{CELLS[name].versions[self.version]}"):
            raise Refused(f"Vivado {self.version} has no IP {vlnv}")
        if options.get("type") != "ip":
            raise Refused("a cell is of type ip")
        self._design().add(words[0], vlnv, own.kind if own else CELLS[name], own)
        return f"/{words[0]}"

    def get_bd_cells(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        return f"/{self._design().cell(words[0].lstrip('/')).name}"

    def get_bd_pins(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        cell, name = self._design().split(words[0])
        cell.pin(name)
        return f"/{cell.name}/{name}"

    def get_bd_intf_pins(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        cell, name = self._design().split(words[0])
        cell.interface(name)
        return f"/{cell.name}/{name}"

    def get_bd_intf_ports(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if words[0] not in self._design().ports:
            raise Refused(f"there is no interface port {words[0]}")
        return f"/{words[0]}"

    def create_bd_intf_port(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        if options.get("vlnv") not in KINDS or options.get("mode") != "Master":
            raise Refused(f"nothing shows a {options.get('mode')} port of {options.get('vlnv')}")
        self._design().ports[words[0]] = options["vlnv"].split(":")[2]
        return f"/{words[0]}"

    def apply_bd_automation(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        rule, cell = options.get("rule", ""), self._design().cell(words[0].lstrip("/"))
        config = dict(zip(*[iter(tcl.splitlist(options.get("config", "")))] * 2))
        if rule not in RULES or rule.split(":")[-1] not in cell.vlnv:
            raise Refused(f"nothing shows a rule {rule} for {cell.vlnv}")
        if config.keys() - {"make_external", "apply_board_preset", "Master", "Slave"}:
            raise Refused(f"{rule} has no {config.keys()}")
        if config.get("apply_board_preset") != "1":
            raise Refused("the board's preset is not applied")
        if "processing_system7" in rule:
            if config.get("make_external") != "FIXED_IO, DDR":
                raise Refused("FIXED_IO and DDR are not made external")
            self._design().automated = True
        return ""

    def connect_bd_net(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._design().connect(*words)
        return ""

    def connect_bd_intf_net(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._design().attach(*words)
        return ""

    def get_bd_addr_spaces(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        cell, name = self._design().split(words[0])
        if name not in cell.kind.spaces:
            raise Refused(f"{cell.name} has no address space {name}")
        return f"/{cell.name}/{name}"

    def get_bd_addr_segs(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        cell, name = self._design().split(words[0])
        if name not in cell.kind.segments:
            raise Refused(f"{cell.name} has no address segment {name}")
        return f"/{cell.name}/{name}"

    def create_bd_addr_seg(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        space, target, _ = words
        self._design().map(space[1:], target[1:], int(options["offset"], 0), int(options["range"], 0))
        return ""

    def save_bd_design(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._design()
        self.saved = True
        return ""

    def validate_bd_design(self, tcl: tkinter.Tk, words: list[str], options: dict[str, str]) -> str:
        self._design().validate()
        return ""


def matches(filter: str, values: dict[str, str]) -> bool:
    """Whether an object with these properties passes Vivado's filter: comparisons that are joined by &&."""
    for part in filter.split("&&") if filter else ():
        comparison = re.fullmatch(r"\s*(\w+)\s*(==|=~)\s*(\S+)\s*", part)
        if comparison is None:
            raise Refused(f"nothing shows a filter {part!r}")
        name, how, wanted = comparison[1], comparison[2], comparison[3].strip('"')
        if name not in values:
            raise Refused(f"a filter asks for {name}, which the object does not have")
        if not (values[name] == wanted if how == "==" else fnmatchcase(values[name], wanted)):
            return False
    return True
