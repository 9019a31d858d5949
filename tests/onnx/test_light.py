"""The light models of the onnx wheel, with random weights: every blob equals onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import pytest

from .compared import assert_every_blob

NAMES = [
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet"),
    *("squeezenet", "vgg19", "zfnet512"),
]
pytestmark = pytest.mark.extras
LARGE = {"bvlc_alexnet", "vgg19", "zfnet512"}  # of hundreds of megabytes
LONG = {"densenet121"}  # its kinds of nodes are those of inception_v2 and squeezenet


def paths() -> dict[str, Path]:
    pytest.importorskip("onnx", reason="onnx is not installed: pip install -e '.[dev]'")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install -e '.[dev]'")
    from .light import light_models

    return {path.stem.removeprefix("light_"): path for path in light_models()}


def test_all_are_tried() -> None:
    assert sorted(paths()) == sorted(NAMES)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE | LONG else name for name in NAMES]
)
def test_every_blob(name: str) -> None:
    from .light import picture, with_weights

    model = with_weights(paths()[name])
    assert_every_blob(model, model.SerializeToString(), **picture(model, seed=0))
