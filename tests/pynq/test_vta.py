"""VTA's published bitstream through the real pynq, on the simulated board."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chai

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")
pytestmark = pytest.mark.skipif(pynq.__version__ >= "4", reason="pynq 4 has no Zynq-7000")

IMAGES = [np.random.default_rng(seed).random((1, 1, 8, 8)).astype(np.float32) for seed in range(3)]


@pytest.fixture
def board(board_of: Any) -> Any:
    made = board_of("vta-z7020")
    yield made
    assert made.accelerator.wrong == []


@pytest.fixture(scope="module")
def wanted() -> list[dict[str, np.ndarray]]:
    net = chai.Net("digits", overlay="vta-z7020", calibrate=IMAGES[0])
    return [net.forward(image) for image in IMAGES]


@pytest.fixture
def net(board: Any) -> chai.Net:
    return chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGES[0])


def right(net: chai.Net, wanted: list[dict[str, np.ndarray]]) -> None:
    for image, values in zip(IMAGES, wanted):
        found = net.forward(image)
        assert all(np.array_equal(found[b], values[b]) for b in values)


def test_digits(net: chai.Net, board: Any, wanted: Any) -> None:
    right(net, wanted)
    assert "fpga:Convolution" in net.schedule.engines()
    assert board.downloads == 1
    assert board.accelerator.ran == 2 + len(IMAGES)  # a FINISH alone, and the known program
