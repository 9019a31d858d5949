"""What the oldest libraries of pyproject.toml lack, and a newer one hides: ``nox -s board`` runs all on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = [path for folder in ("chai", "custom", "tests", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize(
    ("name", "newer"),
    [
        ("Pillow 9.1", r"\bImage\.(Dither|Palette|Quantize|Resampling|Transform|Transpose)\b"),
        ("numpy 1.24", r"FloatingPointError"),  # of a cast, where older ones give infinities
        ("numpy 1.22", r"^(class .*|\w+ = )np\.(ndarray|dtype)\["),  # annotations are text, these are computed
    ],
)
def test_no_file_needs_a_newer_library(name: str, newer: str) -> None:
    texts = {path: path.read_text() for path in FILES if path != Path(__file__)}
    assert [str(path) for path, text in texts.items() if re.search(newer, text, re.MULTILINE)] == [], name
