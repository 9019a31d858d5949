"""The light models of the onnx wheel, with random weights: every blob equals onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai

NAMES = [
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet"),
    *("squeezenet", "vgg19", "zfnet512"),
]
pytestmark = pytest.mark.extras
LARGE = {"bvlc_alexnet", "vgg19", "zfnet512"}  # of hundreds of megabytes


def paths() -> dict[str, Path]:
    pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    from .light import light_models

    return {path.stem.removeprefix("light_"): path for path in light_models()}


def test_all_are_tried() -> None:
    assert sorted(paths()) == sorted(NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in NAMES]
)
def test_every_blob(name: str) -> None:
    path = paths()[name]
    import onnxruntime

    from .light import inner_blobs, with_weights

    model = with_weights(path)
    onnxruntime.set_default_logger_severity(3)
    session = onnxruntime.InferenceSession(inner_blobs(model).SerializeToString())
    with chai.Net(model.SerializeToString(), device="float", keep="all") as net:
        (blob,) = net.inputs
        x = np.random.default_rng(0).normal(0, 1, net.shapes[blob]).astype(np.float32)
        net.forward(**{blob: x})
        references = dict(zip((o.name for o in session.get_outputs()), session.run(None, {blob: x})))
        compared = 0
        for output, reference in references.items():
            if output in net.blobs:
                value, largest = net.blobs[output], float(np.abs(reference).max())
                assert value.shape == reference.shape
                np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-4 * max(largest, 1), err_msg=output)
                compared += 1
        assert compared > len(references) / 2  # others are constants, and outputs for training
