"""Operators that chai does not know are computed by custom layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import PluginError, UnsupportedNodes
from chai.plugins.definition import CustomOptions, CustomType

from .common import model, node, numbers

X = numbers(2, 3, 5, 7)
W, B = numbers(3, 1, 1, seed=1), numbers(3, 1, 1, seed=2)


def file(domain: str = "my.domain", **attributes: Any) -> bytes:
    nodes = [node("Relu", ["x"], ["a"]), node("MyOp", ["a", "w", "b"], ["y"], "mine", domain, **attributes)]
    return model(nodes, {"x": X.shape}, ["y"], {"w": W, "b": B}, domains={domain: 3} if domain else None)


def my_op(x: Any, scale: float, power: int, mode: str, steps: Any) -> None:
    """scale * a ^ power * w + b, plus the sum of the steps if the mode is "sum"."""
    w, b = (p.reshape(1, 3, 1, 1) for p in x.custom_float_params)
    extra = np.sum(steps) if mode == "sum" else 0
    x.top[0][:] = scale * x.bottom[0] ** power * w + b + extra


def types(**arguments: Any) -> dict[str, CustomType]:
    custom = CustomType("MyOp", my_op, False, CustomOptions(args=arguments))
    custom.shape(lambda x, **_: [tuple(x.input_dims[0])])
    return {"MyOp": custom}


ARGUMENTS: dict[str, Any] = {"scale": 1.0, "power": 1, "mode": "none", "steps": ()}


@pytest.mark.parametrize("domain", ["my.domain", "", "com.microsoft"])
def test_attributes_and_constants(domain: str) -> None:
    """Attributes are named arguments, constants are trained parameters; the domain does not matter."""
    attributes = {"scale": 0.5, "power": 2, "mode": "sum", "steps": [1, 2, 4]}
    with chai.Net(file(domain, **attributes), device="float", custom=types(**ARGUMENTS)) as net:
        expected = 0.5 * np.maximum(X, 0) ** 2 * W + B + 7
        np.testing.assert_allclose(net.forward(x=X)["y"], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            net.forward(x=np.tile(X, (2, 1, 1, 1)))["y"], np.tile(expected, (2, 1, 1, 1)), rtol=1e-5
        )
        assert [layer.engine for layer in net.graph.layers] == ["host", "host", "custom"]


def test_defaults_count_where_an_attribute_is_missing() -> None:
    with chai.Net(file(), device="float", custom=types(**ARGUMENTS)) as net:
        np.testing.assert_allclose(net.forward(x=X)["y"], np.maximum(X, 0) * W + B, rtol=1e-5, atol=1e-6)


def test_on_the_emulator() -> None:
    with chai.Net(file(), device="emulator", custom=types(**ARGUMENTS), calibrate=X) as net:
        np.testing.assert_allclose(net.forward(x=X)["y"], np.maximum(X, 0) * W + B, rtol=1e-5, atol=0.1)


def test_what_is_refused() -> None:
    with pytest.raises(UnsupportedNodes, match=r"node 'mine' \(my.domain.MyOp, opset 3\): no layer of chai computes"):
        chai.Net(file(), device="float")
    with pytest.raises(PluginError, match=r"argument .power.: expected a whole number, found 0\.5"):
        chai.Net(file(power=0.5), device="float", custom=types(**ARGUMENTS))
    nodes = model(
        [node("MyOp", ["x", "w", "b"], ["", "y"], "mine", "my.domain")], {"x": X.shape}, ["y"], {"w": W, "b": B}
    )
    with pytest.raises(UnsupportedNodes, match="no name for an output before its last one"):
        chai.Net(nodes, device="float", custom=types(**ARGUMENTS))


def test_a_custom_layer_in_place_of_an_operator() -> None:
    def halved(x: Any) -> None:
        x.top[0][:] = x.bottom[0] / 2

    custom = CustomType("Sigmoid", halved, False, CustomOptions(override=True))
    custom.shape(lambda x: [tuple(x.input_dims[0])])
    nodes = model([node("Sigmoid", ["x"], ["y"])], {"x": X.shape}, ["y"])
    with chai.Net(nodes, device="float", custom={"Sigmoid": custom}) as net:
        np.testing.assert_allclose(net.forward(x=X)["y"], X / 2)


def test_outputs_without_a_size_are_refused_unless_a_custom_layer_has_one() -> None:
    """How many boxes there are depends on the image."""
    nodes = [node("NonMaxSuppression", ["x", "s"], ["y"], "nms")]
    file = model(nodes, {"x": (1, 3, 4)}, ["y"], {"s": numbers(1, 2, 3)})
    with pytest.raises(UnsupportedNodes, match=r"'nms'.*how many numbers it returns depends on the image") as caught:
        chai.Net(file)
    assert 'chai.custom("NonMaxSuppression")' in str(caught.value.hint)
