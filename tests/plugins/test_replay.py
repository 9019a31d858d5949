"""run_layer: one layer alone, on what was kept, dumped or given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.env import env
from chai.util.paths import resource
from tests.passes.common import CONV, network

from .common import DATA, SHAPE, flagged

LINES = f"""
first Convolution data -> a : {CONV}
relu ReLU a -> a
mine mine a data -> b c : {flagged((2, 4, 5, 7))}
last AbsVal b -> y
"""


def mine(x: Any) -> None:
    x.top[0][...] = x.bottom[0] * -2
    x.top[1][...] = x.bottom[1].sum()


def make(folder: Path, **options: Any) -> chai.Net:
    return network(folder, LINES, SHAPE, **{"custom": {"mine": mine}, "keep": "all", **options})


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_on_the_blobs_of_the_last_pass(tmp_path: Path, device: str) -> None:
    net = make(tmp_path, device=device)
    net.forward(DATA)
    tops = chai.run_layer(net, "mine")
    assert set(tops) == {"b", "c"}
    assert all(np.array_equal(tops[blob], net.blobs[blob]) for blob in tops)
    first = chai.run_layer(net, "first")  # what it wrote before the ReLU that works in place
    assert first["a"].min() < 0
    if device == "float":
        assert np.array_equal(np.maximum(first["a"], 0), net.blobs["a"])


def test_on_arrays(tmp_path: Path) -> None:
    net = make(tmp_path)
    rng = np.random.default_rng(4)
    a, data = rng.standard_normal((3, 4, 5, 7)), rng.standard_normal((3, 3, 5, 7))  # float64, another batch
    tops = chai.run_layer(net, "mine", [a, data])
    assert np.array_equal(tops["b"], a.astype(np.float32) * -2)
    assert tops["c"].shape == (3, 4, 5, 7) and tops["c"].dtype == np.float32
    assert net.values == {}


def test_one_array_is_one_bottom(tmp_path: Path) -> None:
    """Not its images: two of them would be the two bottoms of a layer."""
    net = make(tmp_path)
    assert np.array_equal(chai.run_layer(net, "last", DATA[:1])["y"], np.abs(DATA[:1]))
    for alone in (DATA[:2], 3):
        with pytest.raises(chai.UsageError, match="layer 'mine' has 2 bottoms, found 1 array"):
            chai.run_layer(net, "mine", alone)  # type: ignore[arg-type]


def test_from_a_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAI_DUMP", str(tmp_path / "dump"))
    env.cache_clear()
    make(tmp_path).forward(DATA)
    monkeypatch.delenv("CHAI_DUMP")
    env.cache_clear()
    net = make(tmp_path)
    top = chai.run_layer(net, "last", tmp_path / "dump")["y"]
    assert np.array_equal(top, net.forward(DATA)["y"])
    assert np.array_equal(chai.run_layer(net, "relu", str(tmp_path / "dump"))["a"], net.blobs["a"])
    with pytest.raises(
        chai.UsageError, match="blob 'data' is an input of the network, which a dump does not have"
    ) as no:
        chai.run_layer(net, "mine", tmp_path / "dump")
    assert "inputs=[...]" in no.value.hint
    with pytest.raises(chai.UsageError, match=r"there is no .*empty/b\.mine\.npy") as caught:
        chai.run_layer(net, "last", tmp_path / "empty")
    assert "CHAI_DUMP=" in caught.value.hint


def test_the_dump_of_an_overlay_is_answered_with_the_device_that_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an overlay the Dropout before the classifier is no step, and the pooling before that writes codes."""
    digit = chai.Net("digits").preprocess([sorted(resource("prototxt", "digits_images").glob("*.png"))[0]])
    for device in ("emulator", "float"):
        monkeypatch.setenv("CHAI_DUMP", str(tmp_path / device))
        env.cache_clear()
        chai.Net("digits", device=device).forward(digit)
    monkeypatch.delenv("CHAI_DUMP")
    env.cache_clear()
    with chai.Net("digits", device="float", keep="all") as net:
        with pytest.raises(chai.UsageError, match=r"there is no .*pool_4x4\.pool_drop_4x4\.npy") as caught:
            chai.run_layer(net, "classifier", tmp_path / "emulator")
        assert "--device float" in caught.value.hint
        scores = chai.run_layer(net, "classifier", tmp_path / "float")["classifier"]
        net.forward(digit)
        assert np.array_equal(scores, net.blobs["classifier"])


def test_a_debugger_may_step_into_it(tmp_path: Path) -> None:
    """jit=False: the very function, with the object that compiled code gets."""
    net = make(tmp_path)
    net.forward(DATA)
    places = []

    def look(x: Any) -> None:
        import sys

        places.append(sys._getframe().f_back is not None)
        mine(x)

    implementations = net.graph.layer("mine").custom.implementations
    implementations[0] = replace(implementations[0], function=look, jit=True)
    tops = chai.run_layer(net, "mine", jit=False)
    assert places == [True]
    assert np.array_equal(tops["b"], net.blobs["b"])


def test_what_cannot_be(tmp_path: Path) -> None:
    net = make(tmp_path, keep="outputs")
    with pytest.raises(chai.UsageError, match="there is no layer 'mime'") as caught:
        chai.run_layer(net, "mime")
    assert "layers: data, first" in caught.value.hint
    with pytest.raises(chai.UsageError, match="the inputs of layer 'mine' were not kept: a, data") as caught:
        chai.run_layer(net, "mine")
    assert 'keep="all"' in caught.value.hint and "nothing, no pass was run" in caught.value.hint
    net.forward(DATA)
    with pytest.raises(chai.UsageError, match="were not kept") as caught:
        chai.run_layer(net, "mine")
    assert "kept: " in caught.value.hint and "y 2x4x5x7" in caught.value.hint
    with pytest.raises(chai.UsageError, match="layer 'mine' has 2 bottoms, found 1 array"):
        chai.run_layer(net, "mine", [DATA])
    with pytest.raises(chai.ShapeError, match="layer 'first'"):
        chai.run_layer(net, "first", [DATA[0]])


@pytest.mark.parametrize("wrong", [None, "x", DATA.astype(np.complex64), [[1.0], [2.0, 3.0]]], ids=str)
def test_what_is_no_input(tmp_path: Path, wrong: Any) -> None:
    with pytest.raises(chai.UsageError, match="input 'data': expected numbers"):
        chai.run_layer(make(tmp_path), "first", [wrong])


def test_tops_are_no_views_of_the_inputs(tmp_path: Path) -> None:
    net = network(tmp_path, "flat Flatten data -> f", SHAPE, device="float", keep="all")
    data = DATA.copy()
    net.forward(data)
    for inputs in ([data], None):
        top = chai.run_layer(net, "flat", inputs)["f"]
        top[...] = 7
    assert np.array_equal(data, DATA)
    assert np.array_equal(net.blobs["data"], DATA)


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_closed_network(tmp_path: Path, device: str) -> None:
    net = make(tmp_path, device=device)
    net.close()
    with pytest.raises(chai.UsageError, match="is closed"):
        chai.run_layer(net, "first", [DATA])


def test_what_it_raises_is_what_the_network_raises(tmp_path: Path) -> None:
    net = make(tmp_path, custom={"mine": lambda x: 1 / 0})
    with pytest.raises(chai.PluginError, match=rf"layer 'mine' .*{__file__}:\d+: ZeroDivisionError"):
        chai.run_layer(net, "mine", [np.ones((2, 4, 5, 7)), DATA])
