"""docs/rtl.md: its table of fields is the manifest's, and that of resources what yosys counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chai import overlay as overlays

ROOT = Path(__file__).resolve().parents[2]
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


@pytest.mark.slow
def test_the_resources_are_what_yosys_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written anew by ``python tools/synthesise.py --write``; another version of yosys counts a little differently."""
    pytest.importorskip("amaranth", reason="the extra rtl is not installed")
    pyosys = pytest.importorskip("pyosys", reason="the extra rtl is not installed")
    assert pyosys
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import synthesise

    overlay = overlays.load()
    modules = dict(synthesise.netlists(overlay))
    counts = {name: synthesise.resources(synthesise.cells(module)) for name, module in modules.items()}
    counts[overlay.part] = synthesise.available(overlay)
    whole, has = counts[synthesise.WHOLE], counts[overlay.part]
    assert {name: (count, has[name]) for name, count in whole.items() if count > has[name]} == {}
    assert counts["array engine"]["DSP"] == overlay.dsp.array + overlay.dsp.requant
    if synthesise.pyosys_version() in PAGE:
        assert synthesise.written(PAGE, overlay, synthesise.table(counts)) == PAGE
    sys.modules.pop("synthesise", None)
