"""Layers whose tops depend on shapes and parameters alone: computed once for sizes, whatever a network is loaded from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
import chai.pycaffe as caffe
from chai.artifact.save import save
from chai.layers.priors import PriorBox
from tests.passes.common import prototxt
from tests.reference.ssd import prior_box

SHAPE, OTHER = (2, 3, 14, 22), (2, 3, 10, 30)
MINS, VARIANCE = (5.0,), (0.1, 0.2, 0.3, 0.4)
BOXES = "prior_box_param { min_size: 5 " + " ".join(f"variance: {v}" for v in VARIANCE) + " }"
LINES = f"""
c Convolution data -> c : convolution_param {{ num_output: 4 kernel_size: 3 stride: 2 pad: 1 }}
b PriorBox c data -> b : {BOXES}
r {{writer}} b -> b : {{fields}}
"""
ADD = """
import caffe

class Add(caffe.Layer):
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): pass
    def forward(self, bottom, top): top[0].data[...] += 1
"""
Pass = Callable[[tuple[int, ...]], np.ndarray]


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the maps for which boxes are computed."""
    shapes: list[tuple[int, ...]] = []
    forward = PriorBox.forward

    def counted(self: PriorBox, *bottoms: Any) -> Any:
        shapes.append(bottoms[0].shape[2:])
        return forward(self, *bottoms)

    monkeypatch.setattr(PriorBox, "forward", counted)
    return shapes


def boxes(shape: tuple[int, ...]) -> np.ndarray:
    """The boxes by SSD's loops."""
    return prior_box((shape[2] // 2, shape[3] // 2), shape[2:], MINS, variance=VARIANCE)  # type: ignore[arg-type]


def relu(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, x / 2, x)


def written(folder: Path, writer: str = "ReLU", fields: str = "relu_param { negative_slope: 0.5 }") -> Path:
    path = folder / "net.prototxt"
    path.write_text(prototxt(LINES.replace("{writer}", writer).replace("{fields}", fields), SHAPE))
    return path


def of_net(net: chai.Net) -> Pass:
    return lambda shape: net.forward(np.ones(shape, np.float32))["b"]


def of_pycaffe(path: Path, device: str) -> Pass:
    net = caffe.Net(path, caffe.TEST, device=device)

    def run(shape: tuple[int, ...]) -> np.ndarray:
        net.blobs["data"].reshape(*shape)
        out: np.ndarray = net.forward()["b"]
        return out

    return run


@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize("source", ["prototxt", "pycaffe"])
def test_once_for_each_size(tmp_path: Path, computed: list[tuple[int, ...]], source: str, device: str) -> None:
    path = written(tmp_path)
    run = of_net(chai.Net(path, device=device)) if source == "prototxt" else of_pycaffe(path, device)
    run(SHAPE)  # formats are measured on single images
    for _ in range(3):
        assert np.allclose(run(SHAPE), relu(boxes(SHAPE)), atol=1e-6)
    assert 1 <= len(computed) <= (1 if device == "float" else 2)
    assert set(computed) == {(7, 11)}
    computed.clear()
    for _ in range(3):
        assert np.allclose(run(OTHER), relu(boxes(OTHER)), atol=1e-6)
    assert computed == [(5, 15)]
    run(SHAPE)
    assert computed == [(5, 15)]


def test_a_compiled_network(tmp_path: Path, computed: list[tuple[int, ...]]) -> None:
    net = chai.Net(written(tmp_path), device="emulator")
    net.calibrate(np.ones(SHAPE, np.float32))
    save(net, tmp_path / "net.chai")
    computed.clear()
    with chai.Net(tmp_path / "net.chai") as compiled:
        run = of_net(compiled)
        for _ in range(3):
            assert np.allclose(run(SHAPE), relu(boxes(SHAPE)), atol=1e-6)
    assert computed == [(7, 11)]


def test_before_the_first_pass(tmp_path: Path, computed: list[tuple[int, ...]]) -> None:
    chai.Net(written(tmp_path), device="float")
    assert computed == [(7, 11)]


@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize("writer", ["ReLU", "Python", "caller"])
def test_a_writer_does_not_change_the_next_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, writer: str
) -> None:
    monkeypatch.setattr("chai.runtime.steps.forward.library", lambda: None)  # numpy overwrites where it can
    (tmp_path / "mine.py").write_text(ADD)
    more = ("Python", 'python_param { module: "mine" layer: "Add" }') if writer == "Python" else ()
    path = written(tmp_path, *more)
    if writer == "caller":
        path.write_text(prototxt("\n".join(LINES.strip().splitlines()[:2]), SHAPE))
    net = chai.Net(path, device=device, custom=tmp_path / "mine.py")
    wanted = {"ReLU": relu(boxes(SHAPE)), "Python": boxes(SHAPE) + 1, "caller": boxes(SHAPE)}[writer]
    for _ in range(3):
        top = net.forward(np.ones(SHAPE, np.float32))["b"]
        assert np.allclose(top, wanted, atol=1e-6)
        top[...] = 9
