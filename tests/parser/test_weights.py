"""Whether weights fit the layers that they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.errors import ChaiError, MissingWeights, ModelError
from chai.parser.caffemodel import Weights, check_fit, write_caffemodel
from chai.passes.infer_shapes import infer_shapes

from .common import DATA, graph, layer, v2

NETWORK = DATA + layer("c", "Convolution", "data", "c", "convolution_param { num_output: 2 kernel_size: 1 }")
WEIGHT = np.zeros((2, 3, 1, 1), np.float32)


def fit(tmp_path: Path, network: str, *blobs: np.ndarray, name: str = "c") -> Any:
    path = tmp_path / "w.caffemodel"
    write_caffemodel(path, "net", [(name, "Any", blobs)])
    net = graph(network)
    return check_fit(net, infer_shapes(net), Weights(path))


@pytest.mark.parametrize("bias", [(2,), (1, 2), (1, 1, 2), (1, 1, 1, 2)])
def test_shapes_may_differ_by_leading_ones(tmp_path: Path, bias: tuple[int, ...]) -> None:
    assert not fit(tmp_path, NETWORK, WEIGHT, np.zeros(bias, np.float32))


def test_a_shared_slope_may_be_stored_with_or_without_axes(tmp_path: Path) -> None:
    network = DATA + layer("c", "PReLU", "data", "c", "prelu_param { channel_shared: true }")
    for dims in ((), (1,), (1, 1, 1, 1)):
        assert not fit(tmp_path, network, np.zeros(dims, np.float32))


@pytest.mark.parametrize(
    ("blobs", "words", "hint"),
    [
        ([(2, 3, 3, 3), (2,)], "its weights (blob 0) are 2x3x3x3 in", "num_output, kernel_size and group"),
        ([(2, 3, 1, 1), (2, 1)], "its weights (blob 1) are 2x1 in", "num_output, kernel_size and group"),
        ([(3, 2, 1, 1), (2,)], "expected 2x3x1x1", "num_output, kernel_size and group"),
        ([(2, 3, 1, 1), (0,)], "its weights (blob 1) are 0 in", "num_output"),
        ([(2, 3, 1, 1)], "1 blob of weights in", "is bias_term the same in both files?"),
        ([(2, 3, 1, 1), (2,), (2,)], "3 blobs of weights in", "is bias_term the same in both files?"),
    ],
)
def test_weights_that_do_not_fit(tmp_path: Path, blobs: list[tuple[int, ...]], words: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        fit(tmp_path, NETWORK, *(np.zeros(s, np.float32) for s in blobs))
    error = caught.value
    assert words in error.headline
    assert "layer 'c' (Convolution)" in error.headline
    assert str(tmp_path / "w.caffemodel") in error.headline
    assert error.layer == "c"
    assert error.hint is not None
    assert hint in error.hint


def test_weights_for_a_layer_that_has_none(tmp_path: Path) -> None:
    network = DATA + layer("c", "ReLU", "data", "c")
    with pytest.raises(ModelError, match=r"1 blob of weights in .*, expected 0"):
        fit(tmp_path, network, WEIGHT)


def test_a_blob_without_numbers_does_not_pass_for_a_scalar(tmp_path: Path) -> None:
    """An empty BlobProto has the shape of a scalar and no number in it."""
    path = tmp_path / "w.caffemodel"
    path.write_bytes(v2("c", b""))
    net = graph(DATA + layer("c", "PReLU", "data", "c", "prelu_param { channel_shared: true }"))
    with pytest.raises(ChaiError):
        check_fit(net, infer_shapes(net), Weights(path))


def test_layers_without_weights(tmp_path: Path) -> None:
    with pytest.raises(MissingWeights, match=r"layer 'c' \(Convolution\) has no weights in .*w.caffemodel") as caught:
        fit(tmp_path, NETWORK, WEIGHT, name="conv")
    assert caught.value.layer == "c"
    assert caught.value.hint is not None
    assert "the file has: conv" in caught.value.hint


def test_layers_of_the_training_net_are_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "w.caffemodel"
    fitting = ("c", "Convolution", [WEIGHT, WEIGHT[:, 0, 0, 0]])
    write_caffemodel(path, "net", [("loss", "SoftmaxWithLoss", []), fitting, ("aux", "Convolution", [WEIGHT])])
    net = graph(NETWORK)
    assert not check_fit(net, infer_shapes(net), Weights(path))
