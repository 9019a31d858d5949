"""VTA's rules: programs made by hand on the simulator, and wrong simulators that they find."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import chai.vta
from chai.vta import checks, isa, simulator
from tests.conftest import thinned

from .by_hand import Machine
from .rules import RULES

MODULES = "isa", "units", "loops", "checks", "simulator"
SOURCE = Path(chai.vta.__file__).parent
RIGHT = SimpleNamespace(isa=isa, checks=checks, simulator=simulator)


@pytest.mark.parametrize("encoding", ["old", "new"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Callable[[Machine], None], encoding: str) -> None:
    rule(Machine(RIGHT, encoding))


MUTANTS = {  # name: module, text, what it becomes
    "shift amounts of 16 and more go right": ("simulator", "amount = (other & 31 ^ 16) - 16", "amount = other & 31"),
    "shift amounts have six bits": ("simulator", "(other & 31 ^ 16) - 16", "(other & 63 ^ 32) - 32"),
    "shifts are logical": ("simulator", "value >> np.maximum", "(value & 0x7FFFFFFF) >> np.maximum"),
    "left shifts are right shifts": ("simulator", "value << (-amount & 31)", "value >> (-amount & 31)"),
    "STORE saturates": ("simulator", "self.out[dst] = after.astype", "self.out[dst] = after.clip(-128, 127).astype"),
    "sums saturate": (
        "simulator",
        "result = value + other",
        "result = (0.0 + value + other).clip(-(2**31), 2**31 - 1).astype(np.int32)",
    ),
    "a reset clears OUT": (
        "simulator",
        "self.out[dst] = total.astype(np.int8)",
        "self.out[dst] = 0 if reset else total.astype(np.int8)",
    ),
    "a reset keeps ACC": ("simulator", "self.acc[dst] = 0 if reset else total", "self.acc[dst] = total"),
    "weights are inputs by outputs": ("simulator", "self.wgt[wgt[0]].T", "self.wgt[wgt[0]]"),
    "gathered weights are inputs by outputs": (
        "simulator",
        "self.wgt[wgt].astype",
        "self.wgt[wgt].transpose(0, 2, 1).astype",
    ),
    "inputs are unsigned": ("simulator", "self.inp[src].astype", "self.inp[src].view(np.uint8).astype"),
    "the last of repeated accumulators wins": (
        "loops",
        "np.flatnonzero(piece >= begin)",
        "np.flatnonzero(piece > len(before))",
    ),
    "ALU writes no OUT": ("simulator", "            self.out[dst] = after.astype(np.int8)\n", ""),
    "GEMM writes no OUT": ("simulator", "            self.out[dst] = total.astype(np.int8)\n", ""),
    "LOAD ACC writes OUT": (
        "simulator",
        "        if part.size != entries.size:",
        "        self.out[load.entry] = entries[0, 0][0]\n        if part.size != entries.size:",
    ),
    "pads keep what was there": ("simulator", "            part[...] = 0\n", "            pass\n"),
    "left and right pads are exchanged": (
        "simulator",
        "load.left : load.left + load.columns",
        "load.right : load.right + load.columns",
    ),
    "top and bottom pads are exchanged": (
        "simulator",
        "part[load.top : load.top + load.rows",
        "part[load.bottom : load.bottom + load.rows",
    ),
    "the inner loop is outside": ("loops", "np.add.outer(loops, first)", "np.add.outer(loops.T, first)"),
    "micro-ops are outside": (
        "loops",
        "np.add.outer(loops, first).reshape(-1)",
        "np.add.outer(loops, first).reshape(-1, len(first)).T.reshape(-1)",
    ),
    "outer steps are not made": ("loops", "np.arange(nest.outer) * steps[0]", "np.arange(nest.outer) * 0"),
    "inner steps are not made": ("loops", "np.arange(nest.inner) * steps[1]", "np.arange(nest.inner) * 0"),
    "an immediate is an accumulator": ("loops", "if i.immediate is None else None\n", "\n"),
    "MIN is MAX": ("simulator", "np.minimum(value, other)", "np.maximum(value, other)"),
    "rows of DRAM are contiguous": (
        "checks",
        "move.columns * size, move.stride * size",
        "move.columns * size, move.columns * size",
    ),
    "immediates have no sign": ("isa", '_SIGNED = ("immediate",)', "_SIGNED = ()"),
    "both encodings are one": ("isa", '"new": 3', '"new": 2'),
    "tokens may stay": ("units", "        if queue:\n            raise", "        if False:\n            raise"),
    "queues have no end": ("units", "< instructions:", "< 10 * instructions:"),
    "tokens have room": ("units", ">= self.room", ">= 10 * self.room"),
    "FINISH waits for nobody": ("units", "if last.finished[unit] < counts[unit]", "if False"),
    "15 micro-ops are enough": ("loops", "FORGET = 16", "FORGET = 15"),
    "17 micro-ops are needed": ("loops", "FORGET = 16", "FORGET = 17"),
    "a reset reads nothing": (
        "checks",
        "if self.distance and ",
        "if not getattr(instruction, 'reset', 0) and self.distance and ",
    ),
    "any memory may be stored": ("checks", "if not self.filled[Memory.OUT][entries].all()", "if False"),
    "inputs are those of anyone": ("checks", "~(inp[known.src] & wgt[known.wgt])", "~wgt[known.wgt]"),
    "weights are those of anyone": ("checks", "~(inp[known.src] & wgt[known.wgt])", "~inp[known.src]"),
    "all inputs are loaded": ("checks", "if not (inp[sources].all() and ", "if not ("),
    "all weights are loaded": ("checks", " and wgt[weights].all())", ")"),
    "accumulators are those of anyone": ("checks", "out[accumulators] = acc[accumulators]", "out[accumulators] = True"),
    "other accumulators are those of anyone": ("checks", "acc[known.dst[run]] &= acc[known.src[run]]", "pass"),
    "micro-ops do not see the ones before": ("checks", "for run in known.runs:", "for run in [slice(None)]:"),
    "a reset needs loaded entries": ("checks", "            acc[accumulators] = True\n", "            pass\n"),
    "a reset is stored": (
        "checks",
        "        out[accumulators] = acc[accumulators]\n",
        "        out[accumulators] = acc[accumulators] | getattr(instruction, 'reset', 0)\n",
    ),
    "rows of micro-ops are loaded": ("isa", "(rows > 1)", "(rows > 65535)"),
    "pads around nothing are nothing": ("isa", 'padded & (values["columns"] == 0)', "padded & False"),
    "loops around nothing are free": ("loops", "* max(1, len(micro_ops))", "* len(micro_ops)"),
    "pads are not counted": ("checks", "height * width)", "load.rows * load.columns)"),
    "steps are not counted": ("loops", " + (nest.inner - 1) * steps[1]", ""),
    "any buffer may be loaded": ("checks", "memory in area.loads\n", "True\n"),
    "any buffer may be stored to": ("checks", "area.writable if stores", "True if stores"),
    "units do not wait": ("checks", "if last > step.finished[other]", "if False"),
}


@contextmanager
def mutant(module: str, text: str, becomes: str, folder: Path) -> Iterator[Any]:
    """Yield a copy of the simulator in which one text is another."""
    name = "chai.wrong_vta"
    for each in MODULES:
        source = (SOURCE / f"{each}.py").read_text()
        if each == module:
            assert source.count(text) == 1, f"{text!r} is not once in {each}.py"
            source = source.replace(text, becomes)
        (folder / f"{each}.py").write_text(source)
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    importlib.invalidate_caches()
    try:
        yield SimpleNamespace(**{each: importlib.import_module(f"{name}.{each}") for each in MODULES})
    finally:
        for each in [each for each in sys.modules if each.partition(name)[1]]:
            del sys.modules[each]


def faulty(modules: Any) -> bool:
    """Return whether a rule fails; any error counts, but only rules are run."""
    return any(fails(rule, modules, encoding) for encoding in ("old", "new") for rule in RULES)


def fails(rule: Callable[[Machine], None], modules: Any, encoding: str) -> bool:
    try:
        rule(Machine(modules, encoding))
    except (Exception, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize("name", thinned(3, MUTANTS))
def test_a_wrong_simulator_is_found(name: str, tmp_path: Path) -> None:
    with mutant(*MUTANTS[name], tmp_path) as modules:
        assert faulty(modules)


def test_a_copy_of_the_right_one_is_not(tmp_path: Path) -> None:
    with mutant("isa", "UOP_BYTES = 4", "UOP_BYTES = 4  # as it is", tmp_path) as modules:
        assert not faulty(modules)
