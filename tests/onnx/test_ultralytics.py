"""YOLO networks of ultralytics from both of torch's exporters: onnxruntime's numbers, boxes and scores of all places.

pip install ultralytics onnxscript onnxruntime      # in an environment of its own: ultralytics is under the AGPL
pytest -m slow tests/onnx/test_ultralytics.py

Weights are random, from a seed: only the networks' descriptions come with the package. Its YOLOv5 has YOLOv8's head.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import chai

NETWORKS = {"yolov5n": "v5/yolov5n.yaml", "yolov8n": "v8/yolov8n.yaml", "yolo11n": "11/yolo11n.yaml"}
SHAPE = 1, 3, 192, 320

pytestmark = [pytest.mark.slow, pytest.mark.extras]


def exported(path: Path, description: str, dynamo: bool) -> None:
    """Write a detector as it is exported for use: one output, of boxes and scores."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ultralytics = pytest.importorskip("ultralytics", reason="ultralytics is not installed")
    if dynamo:
        pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(0)
    models = Path(ultralytics.__file__).parent / "cfg" / "models"
    module = DetectionModel(str(models / description), ch=3, nc=80, verbose=False).eval()
    for part in module.modules():
        if hasattr(part, "export"):
            part.export, part.format = True, "onnx"
    example = torch.randn(*SHAPE)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module(example)
        opset = 20 if dynamo else 17
        torch.onnx.export(module, (example,), str(path), input_names=["images"], dynamo=dynamo, opset_version=opset)


@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NETWORKS)
def test_numbers_of_onnxruntime(tmp_path: Path, name: str, dynamo: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    path = tmp_path / f"{name}.onnx"
    exported(path, NETWORKS[name], dynamo)
    x = np.random.default_rng(1).random(SHAPE, np.float32)
    (expected,) = onnxruntime.InferenceSession(str(path)).run(None, {"images": x})
    with chai.Net(path, device="float") as net:
        (y,) = net.forward(images=x).values()
    assert y.shape == expected.shape == (1, 84, SHAPE[2] * SHAPE[3] * 21 // 1024)
    assert np.ptp(expected[0, 4:]) > 0
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
