"""docs/architecture.md matches the tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_imports import PACKAGE, RANK

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
PATHS = sorted(
    set(re.findall(r"`((?:chai|tests|proto|custom|hw_overlays|prototxt|docs|tools)/[\w/.]*)`", TEXT)) - {"chai/_data/"}
)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_it_names_is_there(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


def test_every_folder_of_the_package_has_its_contract() -> None:
    folders = {p.parent.name for p in PACKAGE.glob("*/__init__.py")} - {"notebooks"}
    assert {f"chai/{name}/" for name in folders} <= set(PATHS)


def test_its_table_is_in_the_order_that_imports_follow() -> None:
    table = TEXT.split("## The tree")[1].split("\nData folders")[0]
    rows = [re.findall(r"`chai/(\w+)", row.split("|")[1]) for row in table.splitlines() if row.startswith("| `chai/")]
    ranks = [[RANK[name] for name in names] for names in rows]
    assert ranks == sorted(ranks, key=max)
    assert len(rows) > 15
