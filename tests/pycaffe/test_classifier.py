"""Classifier and Detector on networks that give back the pixels they were fed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
import chai.pycaffe as caffe
from tests.conftest import need_models

RNG = np.random.default_rng(0)


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """Batch 3 of 2x3x4 items (C, H, W), flattened: what comes out is what the preprocessing made."""
    path = tmp_path / "echo.prototxt"
    path.write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 dim: 3 dim: 2 dim: 5 } } }\n'
        'layer { name: "out" type: "Flatten" bottom: "data" top: "out" }\n'
    )
    return path


def item(image: np.ndarray, top: int, left: int, mirrored: bool) -> list[float]:
    """BGR, times 255, less 1, 2 and 3, times 2: the crop of 2x5 at (top, left), channels first."""
    values = []
    for k in range(3):
        for y in range(2):
            for x in range(5):
                at = left + (4 - x if mirrored else x)
                values.append((float(image[top + y, at, 2 - k]) * 255 - (k + 1)) * 2)
    return values


OPTIONS = {"mean": np.array([1, 2, 3]), "raw_scale": 255, "input_scale": 2, "channel_swap": (2, 1, 0)}


def test_the_centre_alone(echo: Path) -> None:
    net = caffe.Classifier(str(echo), None, image_dims=(7, 8), **OPTIONS)
    images = [RNG.random((7, 8, 3)).astype(np.float32) for _ in range(4)]
    scores = net.predict(images, oversample=False)
    wanted = [item(image, 2, 1, False) for image in images]  # (7 - 2) / 2 and (8 - 5) / 2, cut down
    assert scores.shape == (4, 30)
    assert np.allclose(scores, wanted, atol=1e-3)


def test_the_mean_over_ten_crops(echo: Path) -> None:
    net = caffe.Classifier(str(echo), None, image_dims=(7, 8), **OPTIONS)
    images = [RNG.random((7, 8, 3)).astype(np.float32) for _ in range(2)]
    places = [(0, 0), (0, 3), (5, 0), (5, 3), (2, 1)]
    wanted = [np.mean([item(im, y, x, m) for y, x in places for m in (False, True)], 0) for im in images]
    scores = net.predict(images)
    assert scores.shape == (2, 30)
    assert np.allclose(scores, wanted, atol=1e-3)


def test_without_image_dims_images_take_the_nets_size(echo: Path) -> None:
    net = caffe.Classifier(str(echo), None)
    assert (list(net.image_dims), list(net.crop_dims)) == ([2, 5], [2, 5])
    assert [*(net.crop_dims / 2.0), *(np.array(net.image_dims) / 2.0)] == [1, 2.5] * 2  # as programs that cut crops do
    image = RNG.random((2, 5, 3)).astype(np.float32)
    assert np.array_equal(net.predict([image], oversample=False)[0], image.transpose(2, 0, 1).ravel())
    mirrored = (image + image[:, ::-1]) / 2
    assert np.allclose(net.predict([image])[0], mirrored.transpose(2, 0, 1).ravel())


@pytest.mark.parametrize("layer", ["Flatten", "ReLU"])
@pytest.mark.parametrize("oversample", [False, True])
def test_no_images_have_no_scores(echo: Path, layer: str, oversample: bool) -> None:
    echo.write_text(echo.read_text().replace("Flatten", layer))
    net = caffe.Classifier(str(echo), None)
    one = net.predict([RNG.random((2, 5, 3)).astype(np.float32)], oversample)
    none = net.predict([], oversample)
    assert none.shape == (0, *one.shape[1:]) and none.dtype == one.dtype


def test_classifying_the_shipped_digits() -> None:
    folder = chai.util.paths.resource("prototxt", "digits_images")
    net = caffe.Classifier("digits", None, image_dims=(8, 8))
    files = sorted(folder.glob("*.png"))[:40]
    images = [caffe.io.load_image(f, color=False) for f in files]
    scores = net.predict(images, oversample=False)
    assert scores.argmax(1).tolist() == [int(f.stem[-1]) for f in files]


def test_a_real_network_from_the_photo_on() -> None:
    """Against real Caffe on inputs that cv2 made; it rounds resized pixels to bytes, a Transformer does not."""
    folder = need_models() / "squeezenet_v1.1"
    meta = json.loads((folder / "meta.json").read_text())
    mean = np.array(meta["preprocess"]["mean_bgr"])
    weights = str(folder / "weights.caffemodel")
    net = caffe.Classifier(
        str(folder / "deploy.prototxt"), weights, (256, 256), mean=mean, raw_scale=255, channel_swap=(2, 1, 0)
    )
    assert net.blobs["data"].num == 10
    cases = meta["cases"]
    photos = [caffe.io.load_image(folder / "images" / case["image"]) for case in cases.values()]
    scores = net.predict(photos, oversample=False)
    wanted = np.concatenate([np.load(folder / "cases" / name / "ref.npz")["prob"] for name in cases])
    assert scores.shape == wanted.shape == (9, 1000, 1, 1)
    assert scores.argmax(1).ravel().tolist() == wanted.argmax(1).ravel().tolist()
    assert np.abs(scores - wanted).max() < 0.01
    assert net.predict(photos[:1]).argmax(1).tolist() == [354]


def test_windows_in_the_order_they_were_given(echo: Path, tmp_path: Path) -> None:
    pictures = {}
    for name, size in (("a.png", (9, 11, 3)), ("b.png", (4, 6, 3))):
        pictures[str(tmp_path / name)] = RNG.integers(0, 256, size, dtype=np.uint8)
        Image.fromarray(pictures[str(tmp_path / name)]).save(tmp_path / name)
    a, b = pictures
    windows = [(a, np.array([[1, 2, 3, 7], [7.0, 6.0, 9.0, 11.0]])), (b, [(2, 1, 4, 6), (0, 0, 2, 5)])]
    net = caffe.Detector(str(echo), None, **OPTIONS)
    rows = net.detect_windows(windows)
    places = [(a, 1, 2), (a, 7, 6), (b, 2, 1), (b, 0, 0)]
    assert [row["filename"] for row in rows] == [name for name, _, _ in places]
    assert [tuple(map(int, row["window"])) for row in rows] == [(t, x, t + 2, x + 5) for _, t, x in places]
    for row, (name, top, left) in zip(rows, places):
        assert np.allclose(row["prediction"], item(pictures[name] / 255, top, left, False), atol=1e-3)
    assert net.detect_windows([]) == []


@pytest.mark.parametrize("window", [(0, 0, 2, 12), (-1, 0, 2, 5), (3, 3, 3, 5), (5, 4, 3, 6)])
def test_windows_outside_the_picture(echo: Path, tmp_path: Path, window: tuple[int, ...]) -> None:
    Image.fromarray(np.zeros((9, 11, 3), np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(chai.UsageError, match=r"is no part of .*a\.png \(9x11\)"):
        caffe.Detector(str(echo), None).detect_windows([(tmp_path / "a.png", [window])])


@pytest.mark.parametrize(
    "window", [None, 3, (0, 0, 2), (0, 0, 2, 5, 1), "abcd", (None,) * 4, (0, 0, np.nan, 5), (0, 0, np.inf, 5)]
)
def test_what_is_no_window(echo: Path, tmp_path: Path, window: Any) -> None:
    Image.fromarray(np.zeros((9, 11, 3), np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(chai.UsageError, match=r"window .*: expected \(ymin, xmin, ymax, xmax\)"):
        caffe.Detector(str(echo), None).detect_windows([(tmp_path / "a.png", [window])])


@pytest.mark.parametrize(
    "pairs", [None, "a.png", ["a.png"], [("a.png",)], [("a.png", [], 3)], [("a.png", None)]], ids=str
)
def test_what_are_no_windows_of_images(echo: Path, pairs: Any) -> None:
    with pytest.raises(chai.UsageError, match="detect_windows: expected an image file and its windows"):
        caffe.Detector(str(echo), None).detect_windows(pairs)


@pytest.mark.parametrize(
    "images", [None, 3, "a.png", ["a.png"], RNG.random((9, 11, 3)), [RNG.random((9, 11))]], ids=str
)
def test_what_are_no_images(echo: Path, images: Any) -> None:
    with pytest.raises(chai.UsageError, match=r"expected (an image|images|numbers)"):
        caffe.Classifier(str(echo), None).predict(images)


@pytest.mark.parametrize("size", [256, (256,), ("a", "b"), (0, 5)], ids=str)
def test_what_are_no_sizes_of_images(echo: Path, size: Any) -> None:
    with pytest.raises(chai.UsageError, match=r"image_dims .*: expected height and width"):
        caffe.Classifier(str(echo), None, image_dims=size)


@pytest.fixture
def square(tmp_path: Path) -> Path:
    """The pixels of a 20x20 input, as they are."""
    path = tmp_path / "square.prototxt"
    path.write_text(
        'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 20 dim: 20 } } }\n'
        'layer { name: "out" type: "AbsVal" bottom: "data" top: "out" }\n'
    )
    return path


def test_context_around_a_window(square: Path, tmp_path: Path) -> None:
    """Half of 20 pixels are context: a window of 10x10 is shown with 5 more pixels at each side, 20x20 of the image."""
    picture = RNG.integers(0, 256, (40, 50, 3), dtype=np.uint8)
    Image.fromarray(picture).save(tmp_path / "a.png")
    net = caffe.Detector(str(square), None, raw_scale=255, context_pad=5)
    (row,) = net.detect_windows([(tmp_path / "a.png", [(10, 17, 19, 26)])])
    expected = picture[5:25, 12:32].transpose(2, 0, 1)
    assert np.allclose(row["prediction"], expected, atol=1e-3)


def test_context_beyond_the_picture_is_the_mean(square: Path, tmp_path: Path) -> None:
    """The window at the corner begins 5 pixels outside; of its 21 pixels 20 are shown, so 5 * 20 / 21 of them are empty."""
    Image.fromarray(np.full((40, 50, 3), 200, np.uint8)).save(tmp_path / "a.png")
    net = caffe.Detector(
        str(square), None, mean=np.array([4, 5, 6]), raw_scale=255, channel_swap=(2, 1, 0), context_pad=5
    )
    (row,) = net.detect_windows([(tmp_path / "a.png", [(0, 0, 9, 9)])])
    pixels = row["prediction"]
    assert np.allclose(pixels[:, :5], 0, atol=1e-3) and np.allclose(pixels[:, :, :5], 0, atol=1e-3)
    for channel, mean in enumerate((4, 5, 6)):
        assert np.allclose(pixels[channel, 5:, 5:], 200 - mean, atol=1e-3)


@pytest.mark.parametrize("context_pad", [-1, 1, 16, "a", float("nan")])
def test_context_that_leaves_no_window(echo: Path, context_pad: Any) -> None:
    with pytest.raises(
        chai.UsageError, match=f"context_pad {context_pad}: expected less than half of the net's input 2x5"
    ):
        caffe.Detector(str(echo), None, context_pad=context_pad)
