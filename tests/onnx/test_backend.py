"""All node cases of onnx.backend.test: none is wrong or crashes, and the number that passes may not fall.

Shapes, axes and the like are inputs there; they become constants of the file, as exporters write them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import report

from .backend import Outcome, arrays, floats, node_cases, outcome
from .vision import OPERATORS, REASONS

VERSION = "1.23.2"  # of onnx, whose cases these are
CASES, PASSED = 652, 547  # of the operators of vision, with float32 in and out
ALL = 550  # that pass, of 1,884

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[Outcome, bool]]:
    """The outcome of each case, and whether it counts: float32 in and out, by operators of vision."""
    pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    found: dict[str, tuple[Outcome, bool]] = {}
    for case in node_cases():
        inputs, outputs = (arrays(values) for values in case.data_sets[0])
        counts = bool(inputs) and floats(inputs[:1]) and floats(outputs)
        counts = counts and {node.op_type for node in case.model.graph.node} <= OPERATORS
        found[case.name] = outcome(case.model, inputs, outputs), counts
    return found


def test_none_is_wrong_and_none_crashes(outcomes: dict[str, tuple[Outcome, bool]]) -> None:
    assert {name: each for name, (each, _) in outcomes.items() if each.verdict in ("wrong", "crash")} == {}
    assert all(each.reason for each, _ in outcomes.values() if each.verdict == "refused")


def test_what_is_refused_is_known(outcomes: dict[str, tuple[Outcome, bool]]) -> None:
    refused = {n: each.reason for n, (each, counts) in outcomes.items() if counts and each.verdict == "refused"}
    assert {n: why for n, why in refused.items() if not any(part in why for part in REASONS)} == {}


def test_counts_do_not_fall(outcomes: dict[str, tuple[Outcome, bool]]) -> None:
    import onnx

    counted = Counter(each.verdict for each, counts in outcomes.values() if counts)
    every = Counter(each.verdict for each, _ in outcomes.values())
    report(
        f"onnx {onnx.__version__}: of {counted.total()} float32 node cases of vision {counted['pass']} pass and "
        f"{counted['refused']} are refused; of all {every.total()}, {every['pass']} pass and {every['refused']} are refused"
    )
    if onnx.__version__ != VERSION:
        pytest.skip(f"the counts are those of onnx {VERSION}, this is {onnx.__version__}")
    assert (counted.total(), every.total()) == (CASES, 1884)
    assert counted["pass"] >= PASSED and every["pass"] >= ALL
