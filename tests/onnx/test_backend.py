"""All node cases of onnx.backend.test: none is wrong or crashes, and the number that passes may not fall.

Shapes, axes and the like are inputs there; they become constants of the file, as exporters write them.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conftest import report

from .backend import Outcome, arrays, exported_cases, floats, node_cases, outcome, wholes
from .vision import CHOICES, OPERATORS, REASONS

VERSION = "1.23.2"  # of onnx, whose cases these are
CASES, PASSED = 652, 580  # of the operators of vision, with float32 in and out
WHOLE, WHOLE_PASSED = 71, 63  # with whole numbers or truth values among the outputs
EXPORTED, EXPORTED_PASSED = 117, 101  # networks of PyTorch from before opset 7
ALL = 753  # that pass, of 1,884

pytestmark = pytest.mark.extras


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[Outcome, str]]:
    """The outcome of each case, and as what it counts: by operators of vision, float32 in, and "float" or "whole" out."""
    pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    outcomes: dict[str, tuple[Outcome, str]] = {}
    for case in node_cases():
        inputs, outputs = (arrays(values) for values in case.data_sets[0])
        used = {node.op_type for node in case.model.graph.node}
        counts = ""
        if inputs and floats(inputs[:1]) and used <= OPERATORS | CHOICES:
            counts = "float" if floats(outputs) and used <= OPERATORS else "whole" if wholes(outputs) else ""
        outcomes[case.name] = outcome(case.model, inputs, outputs), counts
    return outcomes


def test_none_is_wrong_and_none_crashes(outcomes: dict[str, tuple[Outcome, str]]) -> None:
    assert {name: each for name, (each, _) in outcomes.items() if each.verdict in ("wrong", "crash")} == {}
    assert all(each.reason for each, _ in outcomes.values() if each.verdict == "refused")


def test_what_is_refused_is_known(outcomes: dict[str, tuple[Outcome, str]]) -> None:
    refused = {
        n: each.reason for n, (each, counts) in outcomes.items() if counts == "float" and each.verdict == "refused"
    }
    assert {n: why for n, why in refused.items() if not any(part in why for part in REASONS)} == {}


def test_counts_do_not_fall(outcomes: dict[str, tuple[Outcome, str]]) -> None:
    import onnx

    counted = Counter(each.verdict for each, counts in outcomes.values() if counts == "float")
    whole = Counter(each.verdict for each, counts in outcomes.values() if counts == "whole")
    every = Counter(each.verdict for each, _ in outcomes.values())
    report(
        f"onnx {onnx.__version__}: of {counted.total()} float32 node cases of vision {counted['pass']} pass and "
        f"{counted['refused']} are refused, of {whole.total()} with whole numbers out {whole['pass']} pass; of all "
        f"{every.total()}, {every['pass']} pass and {every['refused']} are refused"
    )
    if onnx.__version__ != VERSION:
        pytest.skip(f"the counts are those of onnx {VERSION}, this is {onnx.__version__}")
    assert (counted.total(), whole.total(), every.total()) == (CASES, WHOLE, 1884)
    assert counted["pass"] >= PASSED and whole["pass"] >= WHOLE_PASSED and every["pass"] >= ALL


def test_networks_of_pytorch() -> None:
    """Those that onnx keeps from its converters, most of one layer."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    outcomes = {name: outcome(model, *data) for name, model, *data in exported_cases()}
    counted = Counter(each.verdict for each in outcomes.values())
    report(f"onnx {onnx.__version__}: of {counted.total()} networks of PyTorch {counted['pass']} pass")
    assert {name: each for name, each in outcomes.items() if each.verdict in ("wrong", "crash")} == {}
    if onnx.__version__ != VERSION:
        pytest.skip(f"the counts are those of onnx {VERSION}, this is {onnx.__version__}")
    assert counted.total() == EXPORTED and counted["pass"] >= EXPORTED_PASSED
