"""Blobs of a batch in flight: dropped after their last reader, kept on request."""

from __future__ import annotations

import numpy as np
import pytest

import chai
from chai.fixed import Format
from chai.runtime.execution import Execution
from chai.runtime.slot import Slot

DATA = np.random.default_rng(0).random((3, 1, 8, 8)).astype(np.float32)


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> list[Slot]:
    """The slots of every pass, as they are when its last step is done."""
    seen: list[Slot] = []
    result = Execution.result
    monkeypatch.setattr(Execution, "result", lambda self, slot: (seen.append(slot), result(self, slot))[1])
    return seen


@pytest.mark.parametrize("stream", [False, True])
def test_only_outputs_are_left(slots: list[Slot], stream: bool) -> None:
    net = chai.Net("digits", device="emulator")
    if stream:
        list(net.stream([DATA] * 3))
    else:
        net.forward(DATA)
    for slot in slots:
        assert set(slot.host) == {"prob"}
        assert set(slot.codes) == set()
        assert not any(slot.left.values())


def test_what_is_kept_is_left(slots: list[Slot]) -> None:
    net = chai.Net("digits", device="emulator", keep=["inception_a/output", "pool/4x4", "data"])
    net.forward(DATA)
    blobs = net.blobs
    assert set(blobs) == {"inception_a/output", "pool/4x4", "data", "prob"}
    whole = chai.Net("digits", device="emulator", keep="all")
    whole.calibrate(DATA)
    whole.forward(DATA)
    for name, value in blobs.items():
        assert np.array_equal(value, whole.blobs[name])
    assert set(slots[0].codes) >= {"inception_a/output"}


def test_memory_is_measured_on_an_overlay_too() -> None:
    net = chai.Net("digits", device="emulator")
    net.forward(DATA)
    one, wide = net.perf, np.concatenate([DATA, DATA])
    assert DATA.nbytes < one.peak_bytes < one.blob_bytes
    net.forward(wide)
    assert net.perf.peak_bytes == 2 * one.peak_bytes
    assert net.perf.blob_bytes == 2 * one.blob_bytes


def test_codes_become_numbers_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that keeps every blob computes no more than the outputs; a blob that is read keeps its numbers."""
    decoded: list[int] = []
    dequantize = Format.dequantize
    monkeypatch.setattr(
        Format, "dequantize", lambda self, codes: (decoded.append(codes.size), dequantize(self, codes))[1]
    )
    net, plain = chai.Net("digits", device="emulator", keep="all"), chai.Net("digits", device="emulator")
    outputs = plain.forward(DATA)
    usual = len(decoded)  # Unpacks of a pass where no kernels were compiled
    assert np.array_equal(net.forward(DATA)["prob"], outputs["prob"])
    assert len(decoded) == 2 * usual
    blobs = net.blobs
    on_overlay = [step for step in net.perf.steps if step.engine == "fpga"]
    assert len(on_overlay) > 9
    net.forward(1 - DATA)  # the blobs of the pass before stay as they were
    assert len(decoded) == 3 * usual
    concat = blobs["inception_a/output"]
    assert decoded[3 * usual :] == [concat.size]
    assert blobs["inception_a/output"] is concat
    assert len(decoded) == 3 * usual + 1
    with_blob = chai.Net("digits", device="emulator", keep=["inception_a/output"])
    with_blob.forward(DATA)
    assert np.array_equal(with_blob.blobs["inception_a/output"], concat)
    steps = concat / np.float32(net.formats["inception_a/output"].step) if net.formats else concat
    assert np.allclose(steps, np.rint(steps), atol=1e-3)
    assert np.ptp(steps) > 10
