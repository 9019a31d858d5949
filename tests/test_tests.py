"""What no test may depend on, as far as its text shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import ROOT

FILES = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py" and path != Path(__file__))
CHANCE = {
    r"default_rng\(\)|\bRandom\(\)|\burandom\b|\bsecrets\b": "numbers begin with a seed",
    r"\bderandomize\b|\bdatabase=|\bdeadline=": "tests/conftest.py says for all of hypothesis what is drawn anew, and when",
    r"\bactive_count\(|listdir\(\"/proc/self/fd\"\)": "other tests' threads and files may go meanwhile: see tests/leftovers.py",
}


@pytest.mark.parametrize("pattern", CHANCE, ids=CHANCE.values())
def test_nothing_is_left_to_chance(pattern: str) -> None:
    paths = [path for path in FILES if path.name != "leftovers.py" and re.search(pattern, path.read_text())]
    assert paths == []
