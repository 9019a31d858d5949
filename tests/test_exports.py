"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import chai

PUBLIC = {
    "ChaiError", "DeviceError", "FetchError", "MissingWeights", "ModelError", "Net", "ParseError", "PerfInfo", "PluginError",
    "Pictures", "Preprocess", "ShapeError", "UnknownLayer", "UnsupportedNodes", "UsageError", "__version__", "check_custom",
    "custom", "cv", "from_torch", "getPerfInfo", "load_custom", "video",
        "shape", "run_layer", "xChangeLayer",
}  # fmt: skip


def test_all_lists_the_public_names_and_no_others() -> None:
    assert set(chai.__all__) == PUBLIC == set(dir(chai))


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(chai, name).__doc__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        chai.nothing  # noqa: B018


def test_importing_chai_loads_nothing_else() -> None:
    # old protobuf has the interpreter itself import the package google
    code = (
        "import sys; before = set(sys.modules); import chai\n"
        "print([m for m in set(sys.modules) - before if m.split('.')[0] in ('numpy', 'google', 'rich', 'PIL', 'numba')])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_the_exceptions_are_one_tree() -> None:
    errors = [
        getattr(chai, n)
        for n in PUBLIC
        if isinstance(getattr(chai, n), type) and issubclass(getattr(chai, n), Exception)
    ]
    assert len(errors) == 11
    assert all(issubclass(e, chai.ChaiError) for e in errors)
