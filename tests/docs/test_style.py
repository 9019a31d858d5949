"""docs/style.md shows lines of the tree as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "style.md").read_text()
PAIRS = re.findall(r"^\| `([\w./]+)`[^|]*\| ([^|]+) \| ([^|]+) \|$", TEXT, re.M)


def test_there_are_ten_pairs_on_one_screen() -> None:
    assert len(PAIRS) >= 10
    assert len(TEXT.splitlines()) <= 50


@pytest.mark.parametrize(("path", "before", "after"), PAIRS)
def test_a_file_has_the_line_after_and_no_longer_the_line_before(path: str, before: str, after: str) -> None:
    text = " ".join((ROOT / path).read_text().split())
    assert after in text
    assert before not in text
