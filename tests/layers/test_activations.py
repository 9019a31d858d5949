"""Layers that work element by element, except Eltwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import chai
from tests.reference import elementwise as ref

from .common import Array, Run, Shape, build, close, numbers

X = numbers(2, 3, 5, 7, seed=1, low=-8, high=8)
X[0, 0, 0, :2] = 0, -0.0


def leaky(v: float) -> float:
    return v if v > 0 else 0.5 * v


SHAPES = [(2, 3, 5, 7), (2, 3), (4,), (2, 3, 5, 7, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("type", "body", "function"),
    [
        ("ReLU", "", ref.relu),
        ("ReLU", "relu_param { negative_slope: 0.1 }", lambda x: ref.relu(x, 0.1)),
        ("ReLU", "relu_param { negative_slope: -0.5 }", lambda x: ref.relu(x, -0.5)),
        ("ReLU", "relu_param { relu6: true }", lambda x: ref.each(x, lambda v: min(max(v, 0), 6))),
        ("ReLU", "relu_param { relu6: true negative_slope: 0.5 }", lambda x: ref.each(x, lambda v: min(leaky(v), 6))),
        ("ReLU6", "", lambda x: ref.each(x, lambda v: min(max(v, 0), 6))),
        ("ReLU6", "relu6_param { negative_slope: 0.5 }", lambda x: ref.each(x, lambda v: min(leaky(v), 6))),
        ("BNLL", "", lambda x: ref.each(x, lambda v: math.log(1 + math.exp(v)))),
        ("Threshold", "", lambda x: ref.each(x, lambda v: 1 if v > 0 else 0)),
        ("Threshold", "threshold_param { threshold: -1.5 }", lambda x: ref.each(x, lambda v: 1 if v > -1.5 else 0)),
        ("Clip", "clip_param { min: -1.5 max: 2.25 }", lambda x: ref.each(x, lambda v: max(-1.5, min(v, 2.25)))),
        ("Clip", "clip_param { min: 1.5 max: -2.25 }", lambda x: ref.each(x, lambda v: 1.5)),
        ("Swish", "", lambda x: ref.each(x, lambda v: v / (1 + math.exp(-v)))),
        ("Swish", "swish_param { beta: -0.5 }", lambda x: ref.each(x, lambda v: v / (1 + math.exp(0.5 * v)))),
        ("HardSwish", "", lambda x: ref.each(x, lambda v: v * min(max(v + 3, 0), 6) / 6)),
        ("Exp", "", lambda x: ref.each(x, math.exp)),
        ("Exp", "exp_param { scale: 0.5 shift: -2 }", lambda x: ref.each(x, lambda v: math.exp(0.5 * v - 2))),
        ("Exp", "exp_param { base: 3 scale: 0.5 shift: 2 }", lambda x: ref.each(x, lambda v: 3 ** (0.5 * v + 2))),
        ("Log", "log_param { shift: 9 }", lambda x: ref.each(x, lambda v: math.log(v + 9))),
        ("Log", "log_param { base: 2 scale: -0.5 shift: 7 }", lambda x: ref.each(x, lambda v: math.log2(7 - 0.5 * v))),
        ("Log", "log_param { base: 0.25 shift: 9 }", lambda x: ref.each(x, lambda v: math.log(v + 9, 0.25))),
        ("ELU", "", ref.elu),
        ("ELU", "elu_param { alpha: 0.3 }", lambda x: ref.elu(x, 0.3)),
        ("Sigmoid", "", ref.sigmoid),
        ("TanH", "", ref.tanh),
        ("AbsVal", "", ref.absolute),
        ("Power", "", lambda x: ref.power(x, 1, 1, 0)),
        ("Power", "power_param { scale: -2.5 shift: 3 }", lambda x: ref.power(x, 1, -2.5, 3)),
        ("Power", "power_param { power: 2 scale: 0.5 shift: 1 }", lambda x: ref.power(x, 2, 0.5, 1)),
        ("Power", "power_param { power: 3 shift: -0.5 }", lambda x: ref.power(x, 3, 1, -0.5)),
        ("Power", "power_param { power: -0.5 scale: 0.5 shift: 8 }", lambda x: ref.power(x, -0.5, 0.5, 8)),
        ("Power", "power_param { power: 0 scale: 2 }", lambda x: ref.power(x, 0, 2, 0)),
        ("Power", "power_param { power: 2 scale: 0 shift: 3 }", lambda x: ref.power(x, 2, 0, 3)),
        ("Dropout", "dropout_param { dropout_ratio: 0.4 }", lambda x: ref.each(x, lambda v: v)),
        ("Dropout", "dropout_param { dropout_ratio: 0.4 scale_train: true }", lambda x: ref.each(x, lambda v: v)),
        (
            "Dropout",
            "dropout_param { dropout_ratio: 0.4 scale_train: false }",
            lambda x: ref.each(x, lambda v: 0.6 * v),
        ),
        ("Dropout", "dropout_param { scale_train: false }", lambda x: ref.each(x, lambda v: 0.5 * v)),
    ],
)
def test_element_by_element(run: Run, type: str, body: str, function: Callable[[Array], Array], shape: Shape) -> None:
    x = X if shape == X.shape else numbers(*shape, seed=2, low=-8, high=8)
    (y,) = run(type, body, x)
    close(y, function(x))


@pytest.mark.parametrize("shape", [s for s in SHAPES if len(s) > 1])
@pytest.mark.parametrize("shared", [False, True])
def test_prelu(run: Run, shape: Shape, shared: bool) -> None:
    x = numbers(*shape, seed=2)
    slopes = np.array(0.3, np.float32) if shared else np.array([0.1, -0.7, 2.0], np.float32)
    (y,) = run("PReLU", f"prelu_param {{ channel_shared: {str(shared).lower()} }}", x, weights=(slopes,))
    close(y, ref.prelu(x, slopes.reshape(-1)))


def test_prelu_starts_at_a_quarter(tmp_path: Path) -> None:
    assert build(tmp_path, "PReLU", "", [(2, 3, 5, 7)]).params["probe"][0].tolist() == [0.25] * 3


EXTREME = np.array([[-1e4, -88, -20, 0, 20, 88, 1e4]], np.float32)


@pytest.mark.parametrize(
    ("type", "wanted"),
    [
        ("Sigmoid", [0, 0, 0, 0.5, 1, 1, 1]),
        ("TanH", [-1, -1, -1, 0, 1, 1, 1]),
        ("ELU", [-1, -1, -1, 0, 20, 88, 1e4]),
        ("BNLL", [0, 0, 0, math.log(2), 20, 88, 1e4]),
        ("Swish", [0, 0, 0, 0, 20, 88, 1e4]),
        ("HardSwish", [0, 0, 0, 0, 20, 88, 1e4]),
    ],
)
def test_extremes_do_not_overflow(run: Run, type: str, wanted: list[float]) -> None:
    (y,) = run(type, "", EXTREME)
    assert np.allclose(y, [wanted], atol=1e-6)


def test_in_place(tmp_path: Path) -> None:
    """Tops of the same name as their bottom: each layer's result is kept apart."""
    path = tmp_path / "net.prototxt"
    path.write_text(
        """
        layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } } }
        layer { name: "abs" type: "AbsVal" bottom: "x" top: "x" }
        layer { name: "power" type: "Power" bottom: "x" top: "x" power_param { shift: -1 } }
        layer { name: "relu" type: "ReLU" bottom: "x" top: "x" relu_param { negative_slope: 0.5 } }
        layer { name: "drop" type: "Dropout" bottom: "x" top: "x" }
        """
    )
    net = chai.Net(path, device="float", keep="all")
    copy = X.copy()
    y = net.forward(copy)["x"]
    assert np.array_equal(copy, X)
    shifted = ref.power(ref.absolute(X), 1, 1, -1)
    close(net.tops("power")[0], shifted)
    close(y, ref.relu(shifted, 0.5))


def test_the_logarithm_of_nothing(run: Run) -> None:
    (y,) = run("Log", "", np.array([[0, 1, -1]], np.float32))
    assert y[0, 0] == -np.inf
    assert y[0, 1] == 0
    assert np.isnan(y[0, 2])
