"""Preparation for a size of inputs: memory that is taken before the first pass, within its bound."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.runtime.source import SIZES, PrototxtSource
from chai.runtime.steps import layers
from chai.util.data import malloc

NET = 'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: [1, {}, 64, 64] }} }} }}\n'
RELU = 'layer { name: "relu" type: "ReLU" bottom: "x" top: "y" }\n'


@pytest.mark.parametrize(("channels", "wanted"), [(5, 2 * 2 * 5 * 64 * 64 * 4), (2000, layers.CLAIMED)])
def test_twice_the_largest_layer_and_no_more_than_the_bound(tmp_path: Path, channels: int, wanted: int) -> None:
    (tmp_path / "net.prototxt").write_text(NET.format(channels) + RELU)
    net = chai.Net(tmp_path / "net.prototxt", device="float")
    shapes = {blob: net.shapes_of(blob) for blob in ("x", "y")}
    tracemalloc.start()
    malloc.claim(layers.claimed(shapes))
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert wanted <= peak < 1.2 * wanted
    assert held < 0.2 * wanted


def test_a_few_sizes_are_known_to_be_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the last passes: what is kept of them does not grow with the sizes that a network has seen."""
    (tmp_path / "net.prototxt").write_text(NET.format(5) + RELU)
    net = chai.Net(tmp_path / "net.prototxt", device="float")
    claimed: list[int] = []
    monkeypatch.setattr(malloc, "claim", claimed.append)

    def prepared(*heights: int) -> list[int]:
        """The heights of these for which memory is claimed."""
        claimed.clear()
        for height in heights:
            net.forward(np.zeros((1, 5, height, 7), np.float32))
        return [size // (2 * 2 * 5 * 7 * 4) for size in claimed]

    many = range(1, 3 * SIZES)
    assert prepared(*many) == [*many]
    assert prepared(*many[-SIZES:]) == []
    assert prepared(many[-SIZES], 99, many[-SIZES], many[-SIZES + 1]) == [
        99,
        many[1 - SIZES],
    ]
    assert isinstance(net._source, PrototxtSource)
    assert len(net._source._prepared) == SIZES


def test_blobs_of_unknown_size_claim_nothing() -> None:
    assert layers.claimed({}) == 0
