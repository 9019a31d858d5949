"""Published networks are one segment on pynq-z2, here narrow and of small images; the scores are computed on the host."""

from __future__ import annotations

import numpy as np
import pytest

import chai

from .published import openpose, xception

NARROW = {"xception": (xception(width=16, size=75, classes=10), 75), "openpose": (openpose(width=8, size=48), 48)}
HOST: dict[str, set[str]] = {"xception": {"InnerProduct"}, "openpose": set()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NARROW)
def test_one_segment(name: str) -> None:
    model, size = NARROW[name]
    images = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype(np.float32)
    with chai.Net(model, device="emulator", overlay="pynq-z2") as net, chai.Net(model, device="float") as exact:
        (answer,), (wanted,) = (each.forward(images).values() for each in (net, exact))
        host = {
            layer.type for part in net.offload.plan.partition.segments if part.engine == "host" for layer in part.layers
        }
        assert len(net.schedule.segments) == 1 and host == HOST[name]
    assert (
        np.sqrt(((answer - wanted) ** 2).mean() / wanted.var()) < 0.5
    )  # random layers see nearly the same in all images
