"""YOLO networks of ultralytics from both of torch's exporters: onnxruntime's numbers, in every blob that keeps its name.

pip install ultralytics onnxscript onnxruntime      # in an environment of its own: ultralytics is under the AGPL
pytest -m slow tests/onnx/test_ultralytics.py

Weights are random, from a seed: only the networks' descriptions come with the package. Its YOLOv5 has YOLOv8's head.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compared import assert_every_blob
from .exported import EXPORTERS, export, settle

NETWORKS = {"yolov5n": "v5/yolov5n.yaml", "yolov8n": "v8/yolov8n.yaml", "yolo11n": "11/yolo11n.yaml"}
SHAPE = 1, 3, 192, 320

pytestmark = [pytest.mark.slow, pytest.mark.extras]


@EXPORTERS
@pytest.mark.parametrize("name", NETWORKS)
def test_numbers_of_onnxruntime(tmp_path: Path, name: str, dynamo: bool) -> None:
    """As a detector is exported for use: one output, of boxes and scores of all places."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ultralytics = pytest.importorskip("ultralytics", reason="ultralytics is not installed")
    from ultralytics.nn.tasks import DetectionModel

    torch.manual_seed(0)
    description = Path(ultralytics.__file__).parent / "cfg" / "models" / NETWORKS[name]
    module = DetectionModel(str(description), ch=3, nc=80, verbose=False)
    settle(module, torch.rand(2, *SHAPE[1:]))
    for part in module.modules():
        if hasattr(part, "export"):
            part.export, part.format = True, "onnx"
    path, example = tmp_path / f"{name}.onnx", torch.rand(*SHAPE)
    with torch.no_grad():
        module(example)  # places of the boxes for this size
    model = export(module, example, path, dynamo, "images")
    (y,) = assert_every_blob(model, path, images=np.random.default_rng(1).random(SHAPE, np.float32))
    assert y.shape == (1, 84, SHAPE[2] * SHAPE[3] * 21 // 1024) and np.ptp(y[0, 4:]) > 0
