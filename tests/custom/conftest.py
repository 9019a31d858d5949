"""The fixture that puts one shipped layer into a network, as users write it."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.definition import CustomType
from chai.plugins.loading import load_shipped
from chai.plugins.registry import REGISTRY


@pytest.fixture(params=["compiled", "python", "preferred"])
def way(request: pytest.FixtureRequest) -> str:
    """Whether the decorated function runs, by numba or as it is, or what is preferred to it."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    return str(request.param)


@pytest.fixture
def network(tmp_path: Path, way: str) -> Any:
    """``network(type, fields, shape, weights=())``: an Input ``x`` and a layer ``probe`` flagged user_defined_layer."""

    def make(type: str, fields: str, shape: tuple[int, ...], weights: Sequence[np.ndarray] = ()) -> chai.Net:
        (tmp_path / "net.prototxt").write_text(
            f'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: {list(shape)} }} }} }}\n'
            f'layer {{ name: "probe" type: "{type}" bottom: "x" top: "y" user_defined_layer: true\n  {fields} }}\n'
        )
        model = tmp_path / "net.caffemodel" if weights else None
        if model:
            write_caffemodel(model, "net", [("probe", type, list(weights))])
        custom = {} if way == "preferred" else {type: decorated_alone(type)}
        return chai.Net(tmp_path / "net.prototxt", model, device="float", jit=way != "python", custom=custom)

    return make


def decorated_alone(type: str) -> CustomType:
    """A shipped type without its other implementations."""
    load_shipped()
    custom_type = copy(REGISTRY.find(type))
    assert custom_type is not None
    custom_type.implementations = custom_type.implementations[:1]
    return custom_type
