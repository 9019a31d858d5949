"""Real networks through the real pynq on VTA's simulated board: every blob is that of the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import chai
from chai.offload.schedule import DeviceStep
from tests.conftest import need_models, report

pynq = pytest.importorskip("pynq", reason="no pynq here: nox -s driver")
pytestmark = pytest.mark.skipif(pynq.__version__ >= "4", reason="pynq 4 has no Zynq-7000")


@pytest.mark.parametrize(
    "name",
    [
        "cifar_resnet20",
        pytest.param("squeezenet_v1.1", marks=pytest.mark.slow),
        pytest.param("googlenet", marks=pytest.mark.slow),
    ],
)
def test_every_blob_is_the_emulators(board_of: Any, name: str) -> None:
    folder = need_models() / name
    board = board_of("vta-z7020", memory=128 << 20)
    image = np.load(next((folder / "cases").glob("*")) / "input.npy")[:1]
    nets = [
        chai.Net(
            folder / "deploy.prototxt", folder / "weights.caffemodel", device=device, overlay=board.overlay.path,
            calibrate=image, keep="all",
        )
        for device in ("emulator", "pynq")
    ]  # fmt: skip
    for net in nets:
        net.forward(image)
    wanted, blobs = (net.blobs for net in nets)
    assert set(wanted) == set(blobs)
    assert all(np.array_equal(blobs[b], wanted[b]) for b in wanted)
    segments = [step for step in nets[1].schedule.steps if isinstance(step, DeviceStep) and step.tasks]
    assert board.accelerator.ran == 2 + len(segments)
    report(f"{name} on VTA's simulated board: {len(wanted)} blobs, {sum(len(s.tasks) for s in segments)} Tasks")
