"""LSTM and RNN: pycaffe carries the state to the next pass as Caffe does, chai.Net does not and says so."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe

T, N, SIZE = 3, 2, 4
NET = """
layer {{ name: "in" type: "Input" top: "x" top: "cont"
  input_param {{ shape {{ dim: {t} dim: 2 dim: 4 }} shape {{ dim: {t} dim: 2 }} }} }}
layer {{ name: "r" type: "{type}" bottom: "x" bottom: "cont" top: "h"
  recurrent_param {{ num_output: 5 weight_filler {{ type: "uniform" min: -1 max: 1 }} }} }}
"""


def write(folder: Path, type: str, steps: int) -> Path:
    path = folder / f"{type}{steps}.prototxt"
    path.write_text(NET.format(t=steps, type=type))
    return path


@pytest.mark.parametrize("type", ["LSTM", "RNN"])
def test_two_passes_are_one_long_sequence(type: str, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2 * T, N, SIZE)).astype(np.float32)
    cont = np.ones((2 * T, N), np.float32)
    cont[0] = 0
    whole = caffe.Net(write(tmp_path, type, 2 * T), caffe.TEST).forward(x=x, cont=cont)["h"]
    net = caffe.Net(write(tmp_path, type, T), caffe.TEST)
    parts = [net.forward(x=x[i : i + T], cont=cont[i : i + T])["h"].copy() for i in (0, T)]
    assert np.allclose(np.concatenate(parts), whole, 1e-5, 1e-6)
    fresh = net.forward(x=x[T:], cont=np.concatenate([np.zeros((1, N), np.float32), cont[T + 1 :]]))["h"].copy()
    assert not np.allclose(fresh, parts[1], 1e-3)
    other = caffe.Net(write(tmp_path, type, T), caffe.TEST)  # a net of its own begins at 0
    assert np.allclose(other.forward(x=x[T:], cont=cont[T:])["h"], fresh, 1e-5, 1e-6)


@pytest.mark.parametrize("type", ["LSTM", "RNN"])
def test_chai_answers_an_input_always_the_same_and_says_so_once(
    type: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x = np.random.default_rng(0).standard_normal((T, N, SIZE)).astype(np.float32)
    net = chai.Net(write(tmp_path, type, T), device="float")
    begins = np.ones((T, N), np.float32)
    begins[0] = 0
    net.forward(x, begins)
    assert "cont is 1" not in caplog.text
    with caplog.at_level(logging.WARNING, "chai"):
        first, second = (net.forward(x, np.ones((T, N)))["h"] for _ in range(2))
    assert np.array_equal(first, second)
    assert caplog.text.count("layer 'r' (" + type + "): cont is 1 in the first step") == 1
