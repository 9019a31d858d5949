"""executor.claim: memory that is taken before the first pass, within its bound."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

import chai
from chai.runtime import host

NET = 'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: [1, {}, 64, 64] }} }} }}\n'
RELU = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "y" }\n'


@pytest.mark.parametrize(("channels", "wanted"), [(5, 2 * 2 * 5 * 64 * 64 * 4), (2000, host.CLAIMED)])
def test_twice_the_largest_layer_and_no_more_than_the_bound(tmp_path: Path, channels: int, wanted: int) -> None:
    (tmp_path / "net.prototxt").write_text(NET.format(channels) + RELU)
    net = chai.Net(tmp_path / "net.prototxt", device="float")
    shapes = {blob: net.shapes_of(blob) for blob in ("x", "y")}
    tracemalloc.start()
    host.claim(net.graph, shapes)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert wanted <= peak < 1.2 * wanted
    assert held < 0.2 * wanted


def test_blobs_of_unknown_size_claim_nothing(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET.format(5) + RELU)
    host.claim(chai.Net(tmp_path / "net.prototxt", device="float").graph, {})
