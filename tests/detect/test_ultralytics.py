"""Boxes of ultralytics' own decoding and suppression, on feature maps and on photos through exported networks.

pip install ultralytics onnxscript      # in an environment of its own: ultralytics is under the AGPL
pytest -m slow tests/detect/test_ultralytics.py

Weights are random, from a seed: only the networks' descriptions come with the package. Its YOLOv5 has YOLOv8's head.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai.images.boxes import detections
from chai.images.files import find as find_images
from chai.images.preprocess import Preprocess
from chai.layers import find
from tests.conftest import need_models

NETWORKS = {"yolov5nu": "v5/yolov5n.yaml", "yolov8n": "v8/yolov8n.yaml", "yolo11n": "11/yolo11n.yaml"}
SIZE = 192, 320
SCORE, OVERLAP = 0.25, 0.7
PHOTOS = 10

pytestmark = [pytest.mark.slow, pytest.mark.extras]


def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def suppressed(decoded: Any) -> list[Any]:
    """Rows (corners, score, class) of each image by ultralytics' rule."""
    nms = pytest.importorskip("ultralytics.utils.nms", reason="ultralytics is not installed")
    kept: list[Any] = nms.non_max_suppression(decoded, SCORE, OVERLAP, max_time_img=1000)
    return [rows.numpy() for rows in kept]


def paired(rows: Any, wanted: Any, tolerance: float) -> None:
    """The same boxes of the same classes: ``rows`` (class, score, corners), ``wanted`` (corners, score, class).

    Equal scores, in any order of theirs.
    """
    assert len(rows) == len(wanted)
    assert np.allclose(rows[:, 1], wanted[:, 4], atol=1e-4)
    left = list(range(len(wanted)))
    for row in rows:
        fits = [i for i in left if wanted[i, 5] == row[0] and np.abs(wanted[i, :4] - row[2:]).max() < tolerance]
        assert fits, f"no box of ultralytics is {row}"
        left.remove(fits[0])


@pytest.mark.parametrize("seed", range(5))
def test_decoding_of_feature_maps(seed: int) -> None:
    """Distances, centres, strides and classes on random maps; ultralytics decodes and suppresses."""
    t = torch()
    head = pytest.importorskip("ultralytics.nn.modules.head", reason="ultralytics is not installed").Detect(
        7, ch=(8, 8, 8)
    )
    head.eval()
    head.stride = t.tensor([8.0, 16.0, 32.0])
    random = np.random.default_rng(seed)
    grids = [(SIZE[0] // s, SIZE[1] // s) for s in (8, 16, 32)]
    cells = sum(h * w for h, w in grids)
    boxes = random.normal(0, 2, (2, 64, cells)).astype(np.float32)
    scores = random.normal(-6, 2, (2, 7, cells)).astype(np.float32)
    feats = [t.zeros(2, 8, h, w) for h, w in grids]
    decoded = head._inference({"boxes": t.from_numpy(boxes), "scores": t.from_numpy(scores), "feats": feats})
    cls = find("AnchorFreeDetectionOutput")
    assert cls is not None
    params = cls.Params(
        confidence_threshold=SCORE, nms_threshold=OVERLAP, stride=(8, 16, 32), height=SIZE[0], width=SIZE[1]
    )
    rows = cls("head", ("boxes", "scores"), ("out",), params).forward(boxes, scores)[0].reshape(-1, 7)
    for image, wanted in enumerate(suppressed(decoded)):
        own = rows[rows[:, 0] == image, 1:]
        assert len(own) > 5
        own[:, 2:] *= np.tile(SIZE[::-1], 2)
        paired(own, wanted, 0.01)


@lru_cache(maxsize=1)
def photos() -> list[Path]:
    return find_images([need_models() / "calibration_images"])[:PHOTOS]


def letterboxed() -> Any:
    """The photos as ultralytics prepares them, (N, 3, H, W) from 0 to 1."""
    augment = pytest.importorskip("ultralytics.data.augment", reason="ultralytics is not installed")
    way = augment.LetterBox(SIZE, auto=False)
    pictures = [way(image=np.asarray(Image.open(path).convert("RGB"))[..., ::-1]) for path in photos()]
    return torch().from_numpy(np.stack([p[..., ::-1].transpose(2, 0, 1) for p in pictures]).astype(np.float32) / 255)


def a_model(description: str) -> Any:
    """A detector with seeded weights, whose class bias is raised until each photo has 5 to 100 boxes."""
    t = torch()
    ultralytics = pytest.importorskip("ultralytics", reason="ultralytics is not installed")
    from ultralytics.nn.tasks import DetectionModel

    t.manual_seed(0)
    path = Path(ultralytics.__file__).parent / "cfg" / "models" / description
    model = DetectionModel(str(path), ch=3, nc=80, verbose=False)
    data = letterboxed()
    with t.no_grad():
        model.train()
        for part in model.modules():  # the statistics of its normalisations: maps differ from place to place
            if isinstance(part, t.nn.BatchNorm2d):
                part.momentum = 1.0
        model(data)
        model.eval()
        head = model.model[-1]
        for branch in head.cv3:
            branch[-1].weight *= 0.4
        decoded, raw = model(data)
        for shift in np.arange(0, 20, 0.1):  # a bias is added to every logit
            raised = t.cat([decoded[:, :4], (raw["scores"] + float(shift)).sigmoid()], 1)
            counts = [len(rows) for rows in suppressed(raised)]
            if min(counts) >= 5:
                break
        for branch in head.cv3:
            branch[-1].bias += float(shift)
    assert 5 <= min(counts) <= max(counts) <= 100, counts
    return model


def exported(model: Any, path: Path) -> None:
    """Write a model with its decoded boxes, and with the distances and classes that they come from."""
    t = torch()

    class Both(t.nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            decoded, raw = self.model(x)
            return decoded, raw["boxes"], raw["scores"]

    names = ["decoded", "boxes", "scores"]
    with t.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {
            "input_names": ["images"],
            "output_names": names,
            "dynamo": False,
            "opset_version": 17,
        }
        t.onnx.export(Both().eval(), (t.zeros(1, 3, *SIZE),), str(path), **options)


@pytest.mark.parametrize("name", NETWORKS)
def test_boxes_on_photos(tmp_path: Path, name: str) -> None:
    """Boxes in pixels of each photo, with the decoded head and without.

    Letterboxes differ by a level of gray at most, as OpenCV resizes in whole numbers. Both networks get ultralytics', since
    untrained weights make much of one level.
    """
    ops = pytest.importorskip("ultralytics.utils.ops", reason="ultralytics is not installed")
    model = a_model(NETWORKS[name])
    path = tmp_path / f"{name}.onnx"
    exported(model, path)
    boxed = letterboxed()
    with torch().no_grad():
        wanted = suppressed(model(boxed)[0])
    way = Preprocess(resize="letterbox", channels="RGB", scale=1 / 255)
    for outputs in (["decoded"], ["boxes", "scores"]):
        detect = {"head": "yolov8", "outputs": outputs, "threshold": SCORE, "iou": OVERLAP}
        with chai.Net(path, device="float", detect=detect) as net:
            for photo, item, rows in zip(photos(), boxed.numpy(), wanted):
                with Image.open(photo) as image:
                    picture = image.convert("RGB")
                assert np.abs(way(picture, (1, 3, *SIZE)) - item).max() < 1.01 / 255
                window = way.window(picture.size, (1, 3, *SIZE))
                boxes = detections(net.forward(item[None])["detections"], {0: window})
                expected = rows.copy()
                expected[:, :4] = ops.scale_boxes(SIZE, rows[:, :4].copy(), picture.size[::-1])
                visible = (expected[:, :2] < expected[:, 2:4]).all(1)  # the others are outside the picture
                paired(boxes[:, 1:], expected[visible], 0.5)
