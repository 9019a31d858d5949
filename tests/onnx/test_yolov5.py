"""YOLOv5n with anchors from both of torch's exporters, and a narrow one as files of both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import chai

from .compared import ATOL, RTOL, assert_every_blob
from .exported import EXPORTERS, export, settle

FILES = sorted((Path(__file__).parent / "files").glob("yolov5_*.onnx"))


def image(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(1).random((1, 3, height, width), np.float32)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files(path: Path) -> None:
    """onnxruntime's outputs, kept by ``python -m tests.onnx.yolov5``, wherever chai runs."""
    with chai.Net(path, device="float") as net:
        (y,) = net.forward(images=image(64, 96)).values()
    expected = np.load(path.with_suffix(".npy"))
    assert y.shape == expected.shape == (1, 3 * (8 * 12 + 4 * 6 + 2 * 3), 7)
    np.testing.assert_allclose(y, expected, RTOL, ATOL)


@pytest.mark.extras
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_blob_of_files(path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    assert_every_blob(onnx.load(path), path, images=image(64, 96))


def test_both_exporters_have_a_file() -> None:
    assert [path.stem for path in FILES] == ["yolov5_dynamo", "yolov5_torchscript"]


@EXPORTERS
@pytest.mark.slow
@pytest.mark.extras
def test_full_size(tmp_path: Path, dynamo: bool) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from .yolov5 import YoloV5

    torch.manual_seed(0)
    module = YoloV5()
    assert sum(parameter.numel() for parameter in module.parameters()) == 1_872_157  # as published: 1.9 M
    settle(module, torch.rand(2, 3, 192, 320))
    path = tmp_path / "yolov5n.onnx"
    model = export(module, torch.rand(1, 3, 192, 320), path, dynamo, "images")
    (y,) = assert_every_blob(model, path, images=image(192, 320))
    assert y.shape == (1, 3 * (24 * 40 + 12 * 20 + 6 * 10), 85)
    assert np.ptp(y[..., :4]) > 100 and np.ptp(y[..., 4:]) > 0.1  # pixels, and probabilities
