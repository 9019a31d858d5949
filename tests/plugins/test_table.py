"""The table of capabilities in docs: whole, and every test that it names is there."""

from __future__ import annotations

import ast
import re

import pytest

from .common import ROOT

ROWS = {
    int(cells[0]): cells[1:]
    for line in (ROOT / "docs" / "custom_layers_table.md").read_text().splitlines()
    if (cells := [c.strip() for c in line.strip("|").split("|")])[0].isdecimal()
}


def test_every_row_has_an_answer_and_a_test_or_a_reason() -> None:
    assert list(ROWS) == list(range(1, 73))
    for number, (capability, answer, tests) in ROWS.items():
        assert capability and answer
        assert bool(tests) != answer.startswith("not worth having: "), number


@pytest.mark.parametrize("number", [number for number, cells in ROWS.items() if cells[2]])
def test_the_tests_that_it_names_are_there(number: int) -> None:
    named = ROWS[number][2]
    for test in named.split(", "):
        match = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test)
        assert match, test
        functions = {n.name for n in ast.parse((ROOT / match[1]).read_text()).body if isinstance(n, ast.FunctionDef)}
        assert match[2] in functions, test
