"""docs/from_caffe_python.md: its code runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import chai
from tests.passes.common import prototxt, source

from .common import DATA, ROOT, SHAPE

PAGE = (ROOT / "docs" / "from_caffe_python.md").read_text()
CAFFE, OPENCV, VITIS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
(LAYER,) = re.findall(r"```\n(layer \{.*?)```", PAGE, re.S)


def net(folder: Path, text: str, code: str) -> chai.Net:
    (folder / "my_layers.py").write_text(code)
    (folder / "net.prototxt").write_text(text)
    return chai.Net(folder / "net.prototxt", device="float", custom=folder / "my_layers.py")


def test_the_layer_of_caffe(tmp_path: Path) -> None:
    outputs = net(tmp_path, source("data", SHAPE) + LAYER, CAFFE).forward(DATA)
    assert np.array_equal(outputs["scale"], 3 * DATA)


def test_the_class_of_opencv(tmp_path: Path) -> None:
    pool = "pooling_param { pool: MAX kernel_size: 3 }"
    outputs = net(tmp_path, prototxt(f"p Pooling data -> p : {pool}\nc Crop data p -> y"), OPENCV).forward(DATA)
    assert np.array_equal(outputs["y"], DATA[:, :, 1:4, 1:6])


def test_the_class_of_vitis_ai(tmp_path: Path) -> None:
    outputs = net(tmp_path, prototxt("s Sum data data data -> y"), VITIS).forward(DATA)
    assert np.array_equal(outputs["y"], DATA + DATA + DATA)
