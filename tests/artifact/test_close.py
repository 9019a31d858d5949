"""A .chai file is closed with its network, at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from tests.leftovers import Leftovers
from tests.passes.common import CONV, network

# weights that the device reads where they are (large, for one pixel), weights of a layer on the host, a custom layer
LINES = f"""c1 Convolution data -> c1 : {CONV}
    mine mine c1 -> m : user_defined_layer: true xcustom_param {{ top_dim: 2 top_dim: 1100 }}
    large InnerProduct m -> f : inner_product_param {{ num_output: 1500 }}
    unit TanH f -> t
    small InnerProduct t -> out : inner_product_param {{ num_output: 4 }}"""


def mine(x: chai.xChangeLayer) -> None:
    x.out_ptrs[0][:] = np.resize(x.in_ptrs[0], x.out_ptrs[0].shape)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage collector: only references are counted."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(("device", "overlay"), [("emulator", None), ("vtasim", "vta-z7020")])
def test_close_gives_back_the_file_while_results_are_held(
    device: str, overlay: str | None, tmp_path: Path, uncollected: None
) -> None:
    path = tmp_path / "net.chai"
    options: dict[str, Any] = {"device": device, "overlay": overlay, "custom": {"mine": mine}, "jit": False}
    net = network(tmp_path, LINES, **options)
    data = np.random.default_rng(1).standard_normal((2, 3, 5, 7)).astype(np.float32)
    net.calibrate(data)
    save(net, path)
    left = Leftovers()
    compiled = chai.Net(path, **options)
    answer, perf, stream = compiled.forward(data), compiled.perf, compiled.stream([data, data])
    next(stream)
    inner = "fpga:InnerProduct" if device == "emulator" else "fpga:Convolution"
    assert {"host:mine", inner, "host:InnerProduct"} <= set(compiled.schedule.engines())
    assert set(left.files) == {str(path)}
    compiled.close()
    assert set(left.files) == {str(path)}, "the stream reads it"
    stream.close()
    assert left.files == []
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert np.array_equal(answer["out"], net.forward(data)["out"])
    assert str(perf)
    assert compiled.batch == 2


def test_an_array_of_the_mapping_outlives_it(tmp_path: Path) -> None:
    """Its memory stays until the last reference is gone."""
    net = network(tmp_path, LINES, device="emulator", custom={"mine": mine}, jit=False)
    net.calibrate(np.ones((2, 3, 5, 7), np.float32))
    save(net, tmp_path / "net.chai")
    compiled = chai.Net(tmp_path / "net.chai", custom={"mine": mine}, jit=False)
    weights = compiled.graph.layer("small").blobs[0]
    before = weights.copy()
    assert before.any()
    compiled.close()
    assert np.array_equal(weights, before)
