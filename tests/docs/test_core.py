"""docs/core.md lists the core files, all of them and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "core.md").read_text()
ROWS = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| `")]
FILES = [name for row in ROWS for name in re.findall(r"`([\w/.]+)`", row[0])]
WHOLE = ("chai/tasks", "chai/offload", "chai/codegen", "chai/kernels/native")  # folders with nothing but core files


@pytest.mark.parametrize("name", FILES)
def test_every_file_that_it_lists_is_there(name: str) -> None:
    assert (ROOT / name).is_file()
    assert FILES.count(name) == 1


@pytest.mark.parametrize("folder", WHOLE)
def test_no_core_file_is_left_out(folder: str) -> None:
    sources = [p for p in (ROOT / folder).iterdir() if p.suffix in (".py", ".c", ".h") and p.stat().st_size]
    files = {str(p.relative_to(ROOT)) for p in sources}
    package = f"{folder}/__init__.py"  # has a row where it has more than a docstring
    assert files - {package} <= {*FILES}
    assert len(files) > 5


def test_each_row_says_what_comes_in_what_goes_out_and_what_may_never_happen() -> None:
    assert len(ROWS) > 60
    assert all(len(row) == 4 and all(cell.strip(" |") for cell in row) for row in ROWS)


def test_the_map_of_the_code_links_it() -> None:
    assert "(core.md)" in (ROOT / "docs" / "architecture.md").read_text()
