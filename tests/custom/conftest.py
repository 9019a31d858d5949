"""The fixture that puts one shipped layer into a network, as users write it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.parser.caffemodel import write_caffemodel


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def jit(request: pytest.FixtureRequest) -> bool:
    """Whether numba compiles custom layers."""
    if request.param:
        pytest.importorskip("numba")
    return bool(request.param)


@pytest.fixture
def network(tmp_path: Path, jit: bool) -> Any:
    """``network(type, fields, shape, weights=())``: an Input ``x`` and a layer ``probe`` flagged user_defined_layer."""

    def make(type: str, fields: str, shape: tuple[int, ...], weights: Sequence[np.ndarray] = ()) -> chai.Net:
        (tmp_path / "net.prototxt").write_text(
            f'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: {list(shape)} }} }} }}\n'
            f'layer {{ name: "probe" type: "{type}" bottom: "x" top: "y" user_defined_layer: true\n  {fields} }}\n'
        )
        model = tmp_path / "net.caffemodel" if weights else None
        if model:
            write_caffemodel(model, "net", [("probe", type, list(weights))])
        return chai.Net(tmp_path / "net.prototxt", model, device="float", jit=jit)

    return make
