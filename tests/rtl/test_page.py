"""docs/rtl.md: its table of fields is the manifest's, and that of resources what yosys counts."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chai import overlay as overlays

ROOT = Path(__file__).resolve().parents[2]
# of pynq-z2, as measured with yosys 0.70; fewer is better
LIMITS = {"slow": 0, "deep": 0, "beyond in work": 10, "reset pins": 512, "read ports without register": 0}
PAGE = (ROOT / "docs" / "rtl.md").read_text()


def fields() -> str:
    """The descriptor's fields in Markdown."""
    lines = ["| field | word | bits | meaning |", "|---|---|---|---|"]
    for field in overlays.load().descriptor.fields:
        last = field.bit + field.width - 1
        bits = f"{field.bit}" if last == field.bit else f"{last}..{field.bit}"
        lines.append(f"| {field.name}{' (signed)' if field.signed else ''} | {field.word} | {bits} | {field.about} |")
    return "\n".join(lines) + "\n"


def test_the_fields_are_those_of_the_manifest() -> None:
    written = PAGE.split("<!-- descriptor -->\n\n")[1].split("\n<!-- end of descriptor -->")[0]
    assert written == fields(), f"put this into docs/rtl.md:\n{fields()}"


@pytest.fixture(scope="module")
def synthesise() -> Iterator[Any]:
    """The tool, which is no package."""
    pytest.importorskip("amaranth", reason="the extra rtl is not installed")
    pytest.importorskip("pyosys", reason="the extra rtl is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "tools"))
        yield importlib.import_module("synthesise")


@pytest.fixture(scope="module")
def netlist(synthesise: Any) -> Any:
    """The accelerator of pynq-z2 as yosys maps it: some minutes."""
    return synthesise.synthesised(overlays.load(), synthesise.WHOLE)


@pytest.mark.slow
def test_the_resources_are_what_yosys_counts(synthesise: Any, netlist: Any) -> None:
    """Written anew by ``python tools/synthesise.py --write``; another version of yosys counts a little differently."""
    overlay = overlays.load()
    counts = synthesise.counted(netlist, overlay)
    whole, has = counts[synthesise.WHOLE], counts[overlay.part]
    assert {name: (count, has[name]) for name, count in whole.items() if count > has[name]} == {}
    assert counts["array engine"]["DSP"] == overlay.dsp.array + overlay.dsp.requant
    if synthesise.pyosys_version() in PAGE:
        lines = synthesise.table(counts, overlay.name) + synthesise.shares(counts)
        assert synthesise.written(PAGE, overlay, lines) == PAGE


@pytest.mark.slow
def test_no_path_is_deeper_than_it_was(synthesise: Any, netlist: Any) -> None:
    figures = synthesise.Summary(synthesise.Netlist(netlist)).figures
    assert {name: figures[name] for name, limit in LIMITS.items() if figures[name] > limit} == {}


@pytest.mark.parametrize("name", overlays.names("array"))
def test_the_boards_have_resources_to_spare(name: str) -> None:
    """15 % of each, by the page's tables; of pynq-z2's multipliers, which bound its speed, 1 %."""
    lines = PAGE.split(f"<!-- synthesis of {name} -->")[1].split("<!-- end")[0].strip().splitlines()
    columns, shares = ([cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], lines[-3]))
    assert shares[0] == "in use"
    used = {column: float(share.rstrip("%")) for column, share in zip(columns[1:], shares[1:]) if share != "-"}
    spare = {"DSP": 1} if name == "pynq-z2" else {}
    assert {column: share for column, share in used.items() if share > 100 - spare.get(column, 15)} == {}
