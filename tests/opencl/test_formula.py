"""Formulas of work sizes: C's integer arithmetic, by a parser that evaluates nothing else."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings, strategies as st

from chai.plugins.opencl.formula import Formula, FormulaError
from tests.conftest import examples

SIZES = {"B": 2, "F": 3, "Y": 5, "X": 7}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("X", 7),
        ("B*F*Y*X", 210),
        ("(Y+7)/8*8", 8),
        ("( ( Y + 7 ) / 8 ) * 8", 8),
        ("X-Y-1", 1),  # from the left
        ("X/B/B", 1),
        ("X%Y*B", 4),
        ("X-B*F", 1),
        ("(F-X)/B", -2),  # C truncates towards zero: Python would say -2 too
        ("(B-X)/F", -1),  # and here -2
        ("(B-X)%F", -2),  # Python: 1
        ("4294967296*2147483647", 2**63 - 2**32),
    ],
)
def test_values(text: str, expected: int) -> None:
    assert Formula(text).value(SIZES) == expected


@pytest.mark.parametrize(
    ("text", "reason", "start"),
    [
        ("", "expected a number, B, F, Y, X or a bracket, found the end", 0),
        ("X+", "found the end", 2),
        ("X Y", "expected an operator or the end, found 'Y'", 2),
        ("X**2", "found '*'", 2),
        ("(X+1", "the bracket is not closed", 0),
        ("X+1)", "found ')'", 3),
        ("W", "found 'W'", 0),
        ("x", "found 'x'", 0),
        ("__import__('os')", "found '__import__'", 0),
        ("X//2", "found '/'", 2),
        ("-X", "found '-'", 0),
        ("1.5", "found '.'", 1),
        ("99999999999999999999", "too large", 0),
        ("\N{ARABIC-INDIC DIGIT THREE}", "expected a number", 0),
        ("X" * 300, "300 characters", 0),
        ("(" * 100, "found the end", 100),
    ],
)
def test_refused(text: str, reason: str, start: int) -> None:
    with pytest.raises(FormulaError, match=re.escape(reason)) as caught:
        Formula(text)
    assert caught.value.start in (start, len(text))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("X/(Y-5)", "7 / 0 is a division by zero"),
        ("X%(B-2)", "7 % 0 is a division by zero"),
        ("4294967296*4294967296", "too large"),
    ],
)
def test_cannot_be_computed(text: str, reason: str) -> None:
    with pytest.raises(FormulaError, match=re.escape(reason)):
        Formula(text).value(SIZES)


def trees() -> st.SearchStrategy[tuple[str, float]]:
    """A formula in full brackets, and its value by exact fractions cut to whole numbers."""
    leaves = st.sampled_from([("B", 2), ("F", 3), ("Y", 5), ("X", 7)]) | st.integers(0, 99).map(lambda n: (str(n), n))

    def joined(parts: tuple[tuple[str, int], str, tuple[str, int]]) -> tuple[str, int]:
        (left, a), sign, (right, b) = parts
        if sign in "/%" and b == 0:
            return left, a
        quotient = int(abs(a) / abs(b)) * (1 if a * b > 0 else -1) if b else 0
        value = {"+": a + b, "-": a - b, "*": a * b, "/": quotient, "%": a - b * quotient}[sign]
        return f"({left}{sign} {right})", value

    return st.recursive(leaves, lambda more: st.tuples(more, st.sampled_from("+-*/%"), more).map(joined), max_leaves=6)


@settings(max_examples=examples(60))
@given(trees())
def test_any_formula(tree: tuple[str, int]) -> None:
    text, expected = tree
    assert Formula(text).value(SIZES) == expected
