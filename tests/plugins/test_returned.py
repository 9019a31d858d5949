"""What a function returns: taken as the tops where it fits, refused where it does not; never ignored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from tests.passes.common import network

from .common import DATA, SHAPE, compiles, flagged, one


def flat(x: Any) -> Any:
    return x.in_ptrs[0] * 2


def shaped(x: Any) -> Any:
    return x.bottom[0] * 2


def itself(x: Any) -> Any:
    x.top[0][...] = x.bottom[0] * 2
    return x.top[0]


def in_a_tuple(x: Any) -> Any:
    return (x.bottom[0] * 2,)


@compiles
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("per_image", [False, True])
@pytest.mark.parametrize("function", [flat, shaped, itself, in_a_tuple])
def test_an_array_that_fits_is_the_top(tmp_path: Path, function: Any, jit: bool, per_image: bool) -> None:
    chai.custom("mine", jit=jit, per_image=per_image)(function)
    assert np.array_equal(one(tmp_path).forward(DATA)["y"], 2 * DATA)


def test_one_for_each_top(tmp_path: Path) -> None:
    custom = chai.custom("mine", jit=False)(lambda x: [x.bottom[0] + 1, x.bottom[0][:, :2].astype(np.float64)])
    custom.shape(lambda x: [x.input_dims[0], (2, 2, 5, 7)])
    out = network(tmp_path, "mine mine data -> a b", SHAPE).forward(DATA)
    assert np.array_equal(out["a"], DATA + 1) and np.array_equal(out["b"], DATA[:, :2])


def test_whole_numbers_and_the_layout_of_the_function(tmp_path: Path) -> None:
    chai.custom("mine", jit=False, layout="NHWC")(lambda x: np.arange(x.top[0].size).reshape(2, 5, 7, 3))
    expected = np.arange(DATA.size, dtype=np.float32).reshape(2, 5, 7, 3).transpose(0, 3, 1, 2)
    assert np.array_equal(one(tmp_path).forward(DATA)["y"], expected)


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another shape": (lambda x: x.bottom[0][:, :1], "it returned 2x1x5x7 of float32"),
    "as many numbers of another shape": (lambda x: x.bottom[0].transpose(0, 1, 3, 2), "it returned 2x3x7x5 of float32"),
    "a number": (lambda x: 3, "it returned scalar of int64"),
    "two for one": (lambda x: (x.bottom[0], x.bottom[0]), "it returned 2x3x5x7 of float32, 2x3x5x7 of float32"),
    "complex numbers": (lambda x: x.bottom[0] * 1j, "it returned 2x3x5x7 of complex64"),
    "a text": (lambda x: "done", "it returned scalar of <U4"),
    "x": (lambda x: x, "it returned scalar of object"),
    "no arrays": (lambda x: [], "it returned list"),
    "ragged lists": (lambda x: [[[1], [2, 3]]], "it returned list"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(tmp_path: Path, case: str) -> None:
    function, words = REFUSED[case]
    with pytest.raises(chai.PluginError) as caught:
        one(tmp_path, custom={"mine": function}).forward(DATA)
    assert f"{words}; expected nothing, or an array for each top: 2x3x5x7 of float32" in caught.value.message
    assert "layer 'mine'" in caught.value.message and "test_returned.py:" in caught.value.message


def returns(cast: Any) -> Callable[[Any], Any]:
    return lambda x: x.bottom[0].astype(cast)


def test_a_lambda_of_several_steps_returns_nothing(tmp_path: Path) -> None:
    layer = {"mine": lambda x: (x.top[0].fill(2), None)}
    assert (one(tmp_path, custom=layer).forward(DATA)["y"] == 2).all()


def test_codes_are_taken_only_as_codes(tmp_path: Path) -> None:
    """A float, or a wide integer, would be cut off without a word."""
    conv = "convolution_param { num_output: 3 kernel_size: 1 }"
    lines = f"conv Convolution data -> a : {conv}\nmine mine a -> y : {flagged()}"
    for cast, fits in ((np.int8, True), (np.int64, False), (np.float32, False)):
        custom = chai.custom("mine", jit=False)(lambda x: x.bottom[0])
        custom.impl("codes", dtype="int8", jit=False)(returns(cast))
        net = network(tmp_path, lines, SHAPE, device="emulator", keep="all")
        if fits:
            net.forward(DATA)
            assert np.array_equal(net.blobs["y"], net.blobs["a"]) and net.blobs["a"].any()
        else:
            with pytest.raises(chai.PluginError, match=r"or an array for each top: .* of int8"):
                net.forward(DATA)
