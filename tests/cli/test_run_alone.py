"""chai run on a network without inputs: one pass on what its layers load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai

from .test_commands import as_json

CODE = """
import caffe
import numpy as np

class Noise(caffe.Layer):
    def setup(self, bottom, top):
        self.rng = np.random.default_rng(4)

    def reshape(self, bottom, top):
        top[0].reshape({}, 3, 5, 7)

    def forward(self, bottom, top):
        top[0].data[...] = self.rng.uniform(-1, 1, top[0].shape)
"""
NETWORK = """
layer { name: "noise" type: "Python" top: "noise" python_param { module: "noise" layer: "Noise" } }
layer { name: "conv" type: "Convolution" bottom: "noise" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "fc" type: "InnerProduct" bottom: "conv" top: "fc" inner_product_param { num_output: 6 } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
"""


@pytest.fixture(params=[1, 2])
def batch(request: pytest.FixtureRequest, tmp_path: Path) -> int:
    (tmp_path / "noise.py").write_text(CODE.format(request.param))
    (tmp_path / "net.prototxt").write_text(NETWORK)
    return int(request.param)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_one_pass(chai_command: Any, tmp_path: Path, batch: int, device: str) -> None:
    options = "net.prototxt", "--custom", "noise.py", "--random-weights", "--device", device
    done = chai_command("run", *options, "--perf", "--top", "2", "--trace", "t.json")
    assert done.returncode == 0, done.stderr
    rows = ["net.prototxt"] if batch == 1 else ["net.prototxt[0]", "net.prototxt[1]"]
    assert done.stdout.splitlines()[:2] == ["net.prototxt   no input", rows[0]]
    assert "images/second" in done.stdout
    content = as_json(chai_command("run", *options, "--json", "-o", "out.npz"), "run")
    assert [item["file"] for item in content["images"]] == rows
    assert content["preprocess"] == "no input"
    kept = np.load(tmp_path / "out.npz")["prob"]
    assert kept.shape == (batch, 6)
    if device == "float":
        net = chai.Net(tmp_path / "net.prototxt", device="float", custom=tmp_path / "noise.py")
        assert np.array_equal(kept, net.forward()["prob"])
    best = [item["outputs"]["prob"]["top"][0]["index"] for item in content["images"]]
    assert best == kept.argmax(1).tolist()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("run digits", "digits-inception needs images"),
        ("run digits --batch 3", "--batch does nothing without images"),
        ("run digits --mean 3", "--mean does nothing without images"),
        ("run net.prototxt --custom noise.py --random-weights --draw out.png", "--draw does nothing without images"),
        ("run net.prototxt --custom noise.py --random-weights -i photo.npy", "net has no input for images"),
    ],
)
def test_refusals(chai_command: Any, tmp_path: Path, batch: int, command: str, message: str) -> None:
    np.save(tmp_path / "photo.npy", np.zeros((3, 5, 7), np.float32))
    done = chai_command(*command.split())
    assert done.returncode == 2
    assert f"error: {message}" in done.stderr
    assert "hint: " in done.stderr
