"""The accelerator itself as Verilog that a person can read: one module, with the names of the source."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from ..devices.rtlsim.program import generated
from ..devices.rtlsim.tools import EXTRA, yosys
from ..errors import DeviceError
from ..overlay import Overlay

# what the accelerator tells a simulation; a bitstream leaves it out
PROBES = [f"{engine}_{fact}" for engine in ("array", "window") for fact in ("finished", "mac", "stall")]
KEPT = ("ram_style",)  # attributes that Vivado has to see
# what Verilog would say in a way that readers take for something else: a choice by bits of which at most one is 1 (its case
# statement looks like a priority), and a few bits of a shifted word
_MAPPED = """
(* techmap_celltype = "$pmux" *)
module choice #(parameter WIDTH = 1, parameter S_WIDTH = 1) (A, B, S, Y);
  input [WIDTH-1:0] A;
  input [WIDTH*S_WIDTH-1:0] B;
  input [S_WIDTH-1:0] S;
  output [WIDTH-1:0] Y;
  reg [WIDTH-1:0] chosen;
  integer i;
  always @* begin
    chosen = 0;
    for (i = 0; i < S_WIDTH; i = i + 1) chosen = chosen | B[i*WIDTH +: WIDTH] & {WIDTH{S[i]}};
  end
  assign Y = |S ? chosen : A;
endmodule

(* techmap_celltype = "$shr $shift" *)
module part #(parameter A_SIGNED = 0, B_SIGNED = 0, A_WIDTH = 1, B_WIDTH = 1, Y_WIDTH = 1) (A, B, Y);
  input [A_WIDTH-1:0] A;
  input [B_WIDTH-1:0] B;
  output [Y_WIDTH-1:0] Y;
  wire _TECHMAP_FAIL_ = Y_WIDTH >= A_WIDTH || A_SIGNED || B_SIGNED;
  wire [A_WIDTH-1:0] whole = A >> B;
  assign Y = whole[Y_WIDTH-1:0];
endmodule
"""
_NOT = re.compile(r"(?<![=!<>])! (?=[A-Za-z_{(])")
_ATTRIBUTE = re.compile(r"^ *\(\* (\w+)[^\n]*\*\)\n", re.M)
_ESCAPED = re.compile(r"\\(\S+) ")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def core(overlay: Overlay, name: str) -> str:
    """Return the Verilog of a manifest's accelerator as a module of that name. Raises DeviceError if a tool is missing."""
    for tool in ("amaranth", "pyosys"):
        if find_spec(tool) is None:
            raise DeviceError(f"Verilog cannot be written: the {tool} library is not installed", hint=EXTRA)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.il").write_text(generated(overlay))
        Path(folder, "mapped.v").write_text(_MAPPED)
        yosys(
            Path(folder),
            "read_rtlil top.il",
            *(f"delete -port top/{probe}" for probe in PROBES),
            "proc",
            "memory_collect",
            "flatten -noscopeinfo",
            "opt_expr -fine",
            "techmap -autoproc -map mapped.v t:$pmux t:$shr t:$shift",
            "opt_clean",
            "splitnets -driver",  # no signal depends on a part of itself
            "opt_clean -purge",  # names of what nothing reads, and so nothing drives
            f"rename -top {name}",
            "write_verilog top.v",
        )
        return plain(Path(folder, "top.v").read_text())


def plain(verilog: str) -> str:
    r"""Return Verilog without escaped names (``\array.loader_0.row `` becomes ``array_loader_0_row``) and other tools' notes."""
    verilog = _ATTRIBUTE.sub(lambda match: match[0] if match[1] in KEPT else "", verilog)
    names = readable(_ESCAPED.findall(verilog), set(_WORD.findall(_ESCAPED.sub(" ", verilog))))
    verilog = _ESCAPED.sub(lambda match: names[match[1]] + " ", verilog)
    verilog = _NOT.sub("~|", verilog)  # "! a" of several bits is the same as "~| a", and needs no other width
    return re.sub(r"^/\*.*?\*/\n", "", verilog, count=1, flags=re.S).lstrip()


def readable(escaped: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Return a name of letters, digits and underscores for each escaped one; all differ, and none is ``taken``."""
    names: dict[str, str] = {}
    used = set(taken)
    for each in sorted(set(escaped)):
        base = name = re.sub(r"_*[^A-Za-z0-9_]+", "_", each).strip("_")
        if not base[:1].isalpha():
            base = name = f"n_{base}"
        number = 1
        while name in used:
            number += 1
            name = f"{base}_{number}"
        used.add(name)
        names[each] = name
    return names
