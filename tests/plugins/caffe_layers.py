"""Python layers as they are written for Caffe, and networks that have one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chai
from tests.passes.common import prototxt

from .common import SHAPE

PYTHON = 'python_param {{ module: "{}" layer: "{}" param_str: "{}" }}'
HEAD = "import caffe\nimport numpy as np\n"
DOUBLE = (
    HEAD
    + """
class Double(caffe.Layer):
    def setup(self, bottom, top):
        self.calls = ["setup"]
        self.factor = float(self.param_str or 2)

    def reshape(self, bottom, top):
        self.calls.append(bottom[0].data.shape)
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.factor * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        raise AssertionError("chai computes no gradients")
"""
)


def net(folder: Path, lines: str, code: str = DOUBLE, shape: tuple[int, ...] = SHAPE, **options: Any) -> chai.Net:
    """A network of these lines, with ``code`` as the module ``mine`` that the user names."""
    (folder / "mine.py").write_text(code)
    path = folder / "net.prototxt"
    path.write_text(prototxt(lines, shape))
    return chai.Net(path, **{"device": "float", "custom": folder / "mine.py", **options})


def layer(name: str = "Double", text: str = "", module: str = "mine", wires: str = "data -> y", own: str = "p") -> str:
    return f"{own} Python {wires} : {PYTHON.format(module, name, text)}"


def of(net: chai.Net, name: str = "p") -> Any:
    """The object of the user's class."""
    return net.graph.layer(name)._data["caffe"].layer
