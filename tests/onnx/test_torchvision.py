"""Networks of torchvision from both of torch's exporters: onnxruntime's numbers, in every blob that keeps its name.

pip install torch torchvision onnxscript onnxruntime      # the CPU's wheels are enough
pytest -m slow tests/onnx/test_torchvision.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .compared import assert_every_blob
from .exported import EXPORTERS, export, settle

NAMES = {
    "googlenet": {"aux_logits": False, "transform_input": False, "init_weights": False},
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


@EXPORTERS
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_onnxruntime(tmp_path: Path, name: str, dynamo: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed")
    torch.manual_seed(0)
    module, size = getattr(torchvision.models, name)(weights=None, **NAMES[name]), SIZES.get(name, 96)
    settle(module, torch.randn(2, 3, size, size))
    path = tmp_path / f"{name}.onnx"
    model = export(module, torch.randn(1, 3, size, size), path, dynamo)
    x = np.random.default_rng(1).normal(0, 1, (1, 3, size, size)).astype(np.float32)
    assert_every_blob(model, path, input=x)
