"""tools/timing: arrival times and levels of small netlists, against sums by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from timing import delays, report
from timing.netlist import Netlist
from timing.summary import Summary

OUTPUTS = ("Q", "O", "CO", "DOADO", "DOBDO", "P")


def cell(kind: str, parameters: dict[str, str] | None = None, **pins: list[int | str]) -> dict[str, Any]:
    """Return a cell as yosys writes it."""
    directions = {pin: "output" if pin in OUTPUTS else "input" for pin in pins}
    return {"type": kind, "parameters": parameters or {}, "port_directions": directions, "connections": pins}


def register(d: int, q: int, reset: int | str = "0", enable: int | str = "1") -> dict[str, Any]:
    """Return a flip-flop."""
    return cell("FDRE", C=[1], CE=[enable], D=[d], Q=[q], R=[reset])


def summary(cells: dict[str, dict[str, Any]], **names: list[int]) -> Summary:
    """Return the figures of a module."""
    nets = {name: {"bits": bits} for name, bits in names.items()}
    return Summary(Netlist({"cells": cells, "netnames": nets}))


LOGIC = {  # a: two LUTs and two carry cells of one chain to c; the second LUT goes to d too
    "a": register(99, 10),
    "lut1": cell("LUT2", I0=[10], I1=["1"], O=[11]),
    "lut2": cell("LUT3", I0=[11], I1=[10], I2=["0"], O=[12]),
    "low": cell("CARRY4", CI=["0"], CYINIT=["0"], S=[12, "0", "0", "0"], DI=["0"] * 4, O=[20, 21, 22, 23], CO=[24, 25, 26, 27]),
    "high": cell("CARRY4", CI=[27], CYINIT=["0"], S=["0"] * 4, DI=["0"] * 4, O=[30, 31, 32, 33], CO=[34, 35, 36, 37]),
    "c": register(33, 40),
    "d": register(12, 41),
}  # fmt: skip


@pytest.mark.parametrize("scale", [0.5, 0.7, 1.0])
def test_the_arrival_times_are_sums_by_hand(scale: float) -> None:
    figures = summary(LOGIC, a=[10], c=[40], d=[41])
    (slow, to_c), (fast, to_d) = figures.times(scale)
    # a has 2 loads, the nets after the LUTs 1 and 2; the net from chain to chain and that from the chain to c are inside
    nets = (0.5 + 0.17) + 0.5 + (0.5 + 0.17)
    cells = 0.456 + 0.124 + 0.124 + 0.508 + 0.313 - 0.05
    assert slow == pytest.approx(cells + scale * nets + 0.1)
    assert fast == pytest.approx(0.456 + 2 * 0.124 - 0.05 + scale * nets + 0.1)
    assert (figures.name(to_c), figures.name(to_d)) == ("c", "d")


def test_levels_are_tables_and_whole_chains() -> None:
    figures = summary(LOGIC, a=[10])
    assert figures.by_levels == {(2, 1): 1, (2, 0): 1}
    assert figures.figures["deepest"] == 3


def test_each_cell_is_counted_where_it_leads() -> None:
    cells = {
        "$1": register(9, 10),
        "$2": cell("LUT1", I0=[10], O=[11]),
        "$3": register(11, 12),
        "$4": cell("LUT1", I0=[12], O=[13]),
        "bank.0.0": cell("RAMB36E2", ADDR=[13], DOADO=[14]),
        "$5": register(15, 15),
    }
    nets = {"begin": {"bits": [10]}, "sums_3.total": {"bits": [12]}, "$6": {"bits": [11]}}
    places = {cell.name: name for cell, name in Netlist({"cells": cells, "netnames": nets}).places()}
    table, bank = ("sums_3.total", "sums_3.total"), ("bank.0.0", "bank.0.0")
    assert places == dict(zip(("$1", "$2", "$3", "$4", "bank.0.0", "$5"), ("begin", *table, *bank, "")))


def test_the_most_tables_and_the_most_chains_may_be_of_different_paths() -> None:
    luts = {f"table{i}": cell("LUT1", I0=[50 + i], O=[51 + i]) for i in range(4)}
    both = {"end": cell("LUT2", I0=[54], I1=[33], O=[60]), "e": register(60, 61), "b": register(98, 50)}
    figures = summary(LOGIC | luts | both, e=[61], control=[50])
    (end,) = (end for end in figures.ends if figures.name(end) == "e")
    assert figures.level(end) == (5, 5, 1)
    assert [figures.name(end) for end in figures.beyond] == ["e"]
    assert figures.figures["beyond"] == figures.figures["beyond in work"] == 1


def test_a_register_that_works_once_a_task_is_no_work() -> None:
    luts = {f"table{i}": cell("LUT1", I0=[50 + i], O=[51 + i]) for i in range(4)}
    figures = summary(luts | {"e": register(54, 61), "b": register(98, 50)}, **{"array.planner.a": [61]})
    assert (figures.figures["beyond"], figures.figures["beyond in work"]) == (1, 0)


RAM = {"READ_WIDTH_A": "00000000000000000000000000001001"}


def memory() -> dict[str, Any]:
    """Return a block RAM with two bits that are read."""
    return cell("RAMB18E1", RAM, ADDRARDADDR=[5], DOADO=[70, 71], DOBDO=[])


@pytest.mark.parametrize(
    ("second", "paired"),
    [
        (register(71, 81), True),
        (register(71, 81, reset=6), False),
        (register(71, 81, enable=6), False),
        (cell("LUT1", I0=[71], O=[81]), False),
    ],
)
def test_registers_without_reset_become_those_of_the_memory(second: dict[str, Any], paired: bool) -> None:
    after = {"out": register(80, 90), "r": register(97, 6)}
    figures = summary({"ram": memory(), "first": register(70, 80), "second": second} | after, first=[80], out=[90])
    assert figures.figures["read ports"] == 1
    assert figures.figures["read ports without register"] == (not paired)
    names = {figures.name(end): time for time, end in figures.times(1.0)}
    assert names["out"] == pytest.approx((0.882 if paired else 0.456) + 0.5 - 0.05 + 0.1)
    assert ("first" in names) is not paired  # the path into the RAM's own register is inside
    if not paired:
        assert names["first"] == pytest.approx(2.454 + 0.5 + 0.35 - 0.05 + 0.1)


def test_a_loop_is_an_error() -> None:
    loop = {"x": cell("LUT1", I0=[10], O=[11]), "y": cell("LUT1", I0=[11], O=[10])}
    with pytest.raises(ValueError, match="loop"):
        summary(loop, turn=[10])


def test_resets_are_counted_by_pins() -> None:
    cells = {f"r{i}": register(9, 20 + i, reset=5) for i in range(3)} | {
        "r": register(8, 5),
        "e": register(7, 6, enable=5),
    }
    assert summary(cells, clear=[5]).resets == [(3, "clear", "FDRE")]


def test_a_dsp_ends_a_path_at_its_first_register() -> None:
    registers = {"AREG": "0", "BREG": "1", "ADREG": "1", "MREG": "1", "PREG": "1", "USE_DPORT": "TRUE"}
    dsp = cell("DSP48E1", registers, A=[10], B=[10], P=[50])
    figures = summary({"a": register(9, 10), "dsp": dsp, "p": register(50, 51)}, a=[10])
    wire = 0.5 + 0.17 + 0.35
    times = {end.pin.name: time - 0.1 for time, end in figures.times(1.0)}
    assert times["A"] == pytest.approx(0.456 + wire + 1.756)
    assert times["B"] == pytest.approx(0.456 + wire + 0.4)
    assert times["D"] == pytest.approx(delays.DSP_P + 0.5 + 0.35 - 0.05)
    assert next(iter(figures.dsps))[-1] == "A from registers"


def test_the_report_has_names_and_the_table_its_figures() -> None:
    figures = summary(LOGIC, a=[10], c=[40])
    text = "\n".join(report.lines(figures, 2, timed=True))
    assert "a -> c (FDRE.D): 2 LUTs, 1 chains, fan-out 2" in text
    assert "| most levels | 3 |" in report.table(figures, "board", timed=False)
