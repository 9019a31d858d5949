"""The name that a user may have meant."""

from __future__ import annotations

from pathlib import Path

import chai
from chai.util.suggest import did_you_mean, nearest


def test_the_nearest_known_name_is_suggested() -> None:
    assert did_you_mean("emulatr", ["float", "emulator", "null"]) == "did you mean 'emulator'?"
    assert did_you_mean("emulatr", ["emulator"], quoted=False) == "did you mean emulator?"
    assert did_you_mean("xyz", ["float", "null"]) is None
    assert nearest("ab", ["abc", "abd", "q"], 2) == ["abd", "abc"]


def test_all_known_names_can_follow() -> None:
    assert did_you_mean("nul", ["float", "null"], listed="devices") == "did you mean 'null'? devices: float, null"
    assert did_you_mean("xyz", ["float", "null"], listed="devices") == "devices: float, null"


def test_it_is_the_only_place_that_compares_names() -> None:
    users = [p.name for p in Path(chai.__file__).parent.rglob("*.py") if "get_close_matches" in p.read_text()]
    assert users == ["suggest.py"]
