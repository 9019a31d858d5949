"""A source may write its next batch into the same array or dict, as a camera does; a caller may do so after a pass."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from tests.conftest import HANG

Array = np.ndarray
SHAPE = (2, 3, 9, 7)
NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 9 dim: 7 } } }
layer { name: "mine" type: "mine" bottom: "data" top: "m" user_defined_layer: true
  xcustom_param { top_dim: [2, 3, 9, 7] } }
layer { name: "c" type: "Convolution" bottom: "m" top: "c" convolution_param { num_output: 5 kernel_size: 3 } }
layer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }
layer { name: "drop" type: "Dropout" bottom: "flat" top: "drop" }
"""
LABELLED = """
layer { name: "data" type: "Data" top: "data" top: "label" }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 4 kernel_h: 9 kernel_w: 7 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "c" bottom: "label" top: "loss" }
"""


def frames(dtype: type) -> list[Array]:
    return [np.random.default_rng(i).uniform(0, 9, SHAPE).astype(dtype) for i in range(12)]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("form", ["array", "dict", "strided"])
@pytest.mark.parametrize("kind", ["float", "emulator", "chai", "chai, another batch"])
def test_a_source_that_writes_into_one_array(kind: str, form: str, dtype: type, tmp_path: Path) -> None:
    """On an overlay the layer that reads the first batch waits until the second is in its place."""
    written: list[int] = []
    second = threading.Event()

    def mine(x: chai.xChangeLayer) -> None:
        assert not wait or second.wait(HANG)
        x.out_ptrs[0][:] = x.in_ptrs[0] * np.float32(0.5)

    wait = False
    custom, path = {"mine": mine}, tmp_path / "net.prototxt"
    path.write_text(NET)
    net = chai.Net(path, device="float" if kind == "float" else "emulator", custom=custom, jit=False)
    net.calibrate(frames(np.float32)[0])
    if kind.startswith("chai"):
        save(net, tmp_path / "net.chai")
        net = chai.Net(tmp_path / "net.chai", custom=custom, jit=False)
    batch = 1 if kind.endswith("batch") else 2
    wanted = [net.forward(frame[:batch].copy()) for frame in frames(dtype)]
    wait = kind in ("emulator", "chai")
    place = (
        np.empty((batch, *SHAPE[1:]), dtype) if form != "strided" else np.empty((batch, 3, 7, 9), dtype).swapaxes(2, 3)
    )
    named: dict[str, Any] = {}

    def camera() -> Iterator[Any]:
        for frame in frames(dtype):
            named["data"] = place
            place[...] = frame[:batch]
            written.append(len(written))
            if len(written) == 2:
                second.set()
            yield named if form == "dict" else place
            named.clear()

    answers = list(net.stream(camera()))
    place[...] = 0
    assert len(answers) == 12
    for answer, right in zip(answers, wanted):
        assert set(answer) == {"c", "drop"}
        assert all(np.array_equal(answer[name], right[name]) for name in right)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_labels_in_one_array(device: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(LABELLED)
    net = chai.Net(path, device=device, shapes={"data": SHAPE})
    net.calibrate(frames(np.float32)[0])
    batches = [
        {"data": frame, "label": np.array([i % 4, i % 3], np.float32)} for i, frame in enumerate(frames(np.float32))
    ]
    wanted = [float(net.forward(**batch)["loss"]) for batch in batches]
    assert len(set(wanted)) == 12
    named = {"data": np.empty(SHAPE, np.float32), "label": np.empty(2, np.float32)}

    def source() -> Iterator[dict[str, Array]]:
        for batch in batches:
            for name, values in batch.items():
                named[name][...] = values
            yield named

    assert [float(answer["loss"]) for answer in net.stream(source())] == wanted


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_what_forward_returned_and_blobs_stay(device: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    custom = {"mine": lambda x: np.copyto(x.out_ptrs[0], x.in_ptrs[0])}
    net = chai.Net(path, device=device, keep=["data", "flat"], custom=custom, jit=False)
    first, second = frames(np.float32)[:2]
    place = first.copy()
    answer = net.forward(place)
    place[...] = second
    assert np.array_equal(answer["drop"], first.reshape(2, -1))
    assert np.array_equal(net.blobs["data"], first)
    assert np.array_equal(net.blobs["flat"], first.reshape(2, -1))
