"""The same network from a caffemodel and from an ONNX file: every number of both is the same."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.fixed import Requantization
from chai.passes.rewrite import rewrite
from tests.conftest import need_models
from tools.bench.onnx import onnx


def pair(name: str, folder: Path, **options: Any) -> tuple[chai.Net, chai.Net]:
    """The network of Caffe's files, and what was written of it as ONNX."""
    files = need_models() / name
    caffe = chai.Net(files / "deploy.prototxt", files / "weights.caffemodel", batch=2, **options)
    path = folder / f"{name}.onnx"
    blobs = {blob: caffe.shapes_of(blob) for layer in caffe.graph.layers for blob in layer.tops}
    rewritten = rewrite(caffe.graph)
    path.write_bytes(onnx(rewritten, blobs))
    return caffe, chai.Net(path, **options)


@pytest.mark.parametrize("name", ["googlenet", "squeezenet_v1.1"])
def test_float(tmp_path: Path, name: str) -> None:
    caffe, other = pair(name, tmp_path, device="float")
    x = np.random.default_rng(0).normal(0, 50, caffe.shapes["data"]).astype(np.float32)
    (expected,), (y,) = caffe.forward(data=x).values(), other.forward(data=x).values()
    np.testing.assert_array_equal(y.reshape(expected.shape), expected)


@pytest.mark.parametrize("name", ["googlenet", "squeezenet_v1.1"])
def test_emulator(tmp_path: Path, name: str) -> None:
    """Layers, formats, Tasks and every code."""
    caffe, other = pair(name, tmp_path, device="emulator")
    x = np.random.default_rng(0).normal(0, 50, caffe.shapes["data"]).astype(np.float32)
    for net in (caffe, other):
        net.calibrate(data=x)
    (expected,), (y,) = caffe.forward(data=x).values(), other.forward(data=x).values()
    np.testing.assert_array_equal(y.reshape(expected.shape), expected)
    graphs = [rewrite(net.graph) for net in (caffe, other)]
    assert caffe.formats is not None and other.formats is not None
    for one, same in zip(*(graph.layers for graph in graphs), strict=True):
        assert one.type == same.type
        assert all(np.array_equal(a, b) for a, b in zip(one.blobs, same.blobs, strict=True))
        for top, other_top in zip(one.tops, same.tops, strict=True):
            assert caffe.formats.get(top) == other.formats.get(other_top)
        if one.type == "Convolution":
            assert (one.window, one.params.group, one.slope) == (same.window, same.params.group, same.slope)
    segments = [[list(segment.tasks) for segment in net.schedule.segments] for net in (caffe, other)]
    assert [*map(len, segments[0])] == [*map(len, segments[1])]
    for one_task, same_task in zip(*(chain.from_iterable(tasks) for tasks in segments), strict=True):
        assert numbers_of(one_task) == numbers_of(same_task)


def numbers_of(task: Any) -> dict[str, Any]:
    """All that a Task computes with: everything but the names of blobs and layers."""
    named = {"inputs", "output", "origin"}
    return {name: plain(value) for name, value in vars(task).items() if name not in named and not name.startswith("_")}


def plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    return {name: plain(v) for name, v in value._asdict().items()} if isinstance(value, Requantization) else value


@pytest.mark.parametrize("name", ["squeezenet_v1.1"])
def test_one_segment(tmp_path: Path, name: str) -> None:
    _, other = pair(name, tmp_path, device="emulator", overlay="pynq-z2")
    other.forward(data=np.zeros(other.shapes["data"], np.float32))
    assert len(other.schedule.segments) == 1
