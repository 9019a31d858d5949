"""Networks of torchvision from both of torch's exporters: onnxruntime's numbers, in every blob that keeps its name.

pip install torch torchvision onnxscript onnxruntime      # the CPU's wheels are enough
pytest -m slow tests/onnx/test_torchvision.py
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai

from .light import inner_blobs

NAMES = {
    "googlenet": {"aux_logits": False, "transform_input": False, "init_weights": True},
    "resnet18": {},
    "resnet50": {},
    "mobilenet_v2": {},
    "mobilenet_v3_small": {},
    "mobilenet_v3_large": {},
    "efficientnet_b0": {},
    "shufflenet_v2_x1_0": {},
    "densenet121": {},
    "squeezenet1_1": {},
    "vgg16": {},
}
SIZES = {"vgg16": 224}  # pixels; the others' pools fit any size, and 96 is faster

pytestmark = [pytest.mark.slow, pytest.mark.extras]


def exported(path: Path, name: str, dynamo: bool) -> None:
    """Write a network with random weights and, so that blobs keep their size, random statistics of its normalisations."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    if dynamo:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    torch.manual_seed(0)
    module = getattr(torchvision.models, name)(weights=None, **NAMES[name])
    size = SIZES.get(name, 96)
    module.train()
    with torch.no_grad():
        for _ in range(3 if any("num_batches_tracked" in key for key in module.state_dict()) else 0):
            module(torch.randn(4, 3, size, size))  # statistics
        module.eval()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module,
                (torch.randn(1, 3, size, size),),
                str(path),
                input_names=["input"],
                dynamo=dynamo,
                **({"opset_version": 20} if dynamo else {"opset_version": 17, "dynamic_axes": {"input": {0: "batch"}}}),
            )


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_onnxruntime(tmp_path: Path, name: str, dynamo: bool) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path = tmp_path / f"{name}.onnx"
    exported(path, name, dynamo)
    model: Any = inner_blobs(onnx.load(path))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    size = SIZES.get(name, 96)
    x = np.random.default_rng(1).normal(0, 1, (1, 3, size, size)).astype(np.float32)
    names = [output.name for output in session.get_outputs() if output.type == "tensor(float)"]
    expected = dict(zip(names, session.run(names, {"input": x})))
    with chai.Net(path, device="float", keep="all") as net:
        (y,) = net.forward(input=x).values()
        blobs = {blob: net.blobs[blob] for blob in net.blobs if blob in expected}
    np.testing.assert_allclose(y, expected[net.outputs[0]], rtol=1e-4, atol=1e-4 * max(1, float(np.abs(y).max())))
    assert len(blobs) > 20
    for blob, value in blobs.items():
        reference = expected[blob]
        np.testing.assert_allclose(value, reference, rtol=1e-4, atol=1e-4 * max(1, float(np.abs(reference).max())))
