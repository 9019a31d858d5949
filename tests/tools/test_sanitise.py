"""The kernels' tests that run with sanitisers."""

from __future__ import annotations

from tests.conftest import ROOT
from tools.sanitise import TESTS


def test_each_of_them_exists() -> None:
    named = [word for words in TESTS.values() for word in words if word.startswith("tests/")]
    assert len(named) > 15
    for word in named:
        path, _, test = word.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text() or not test, word
