"""Images on their way into a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from chai import Preprocess, UsageError
from chai.graph.params import SIZE
from chai.images import files
from chai.kernels import pixels as kernels
from chai.zoo.card_file import read_card, with_preprocess
from tests.conftest import need_models

GRADIENT = np.arange(11 * 13 * 3, dtype=np.uint8).reshape(11, 13, 3)


def picture(array: np.ndarray = GRADIENT) -> Image.Image:
    return Image.fromarray(array)


def naive_bilinear(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """cv::resize(INTER_LINEAR) in words of one pixel at a time."""
    h, w = pixels.shape[:2]
    out = np.zeros((*size, *pixels.shape[2:]))
    for y in range(size[0]):
        for x in range(size[1]):
            fy = min(max((y + 0.5) * h / size[0] - 0.5, 0), h - 1)
            fx = min(max((x + 0.5) * w / size[1] - 0.5, 0), w - 1)
            y0, x0 = int(fy), int(fx)
            y1, x1 = min(y0 + 1, h - 1), min(x0 + 1, w - 1)
            dy, dx = fy - y0, fx - x0
            out[y, x] = (pixels[y0, x0] * (1 - dx) + pixels[y0, x1] * dx) * (1 - dy) + (
                pixels[y1, x0] * (1 - dx) + pixels[y1, x1] * dx
            ) * dy
    return out


@pytest.mark.parametrize("size", [(5, 7), (23, 17), (11, 29), (1, 2), (11, 13)])
def test_bilinear_is_caffes(size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (11, 13, 3)).astype(np.float32)
    resized = kernels.bilinear(pixels, size)
    assert resized.shape == (*size, 3)
    assert np.abs(resized - naive_bilinear(pixels, size)).max() <= 0.5 + 1e-3  # rounded to whole values


def test_a_one_pixel_image_can_grow() -> None:
    assert (kernels.bilinear(np.full((1, 1, 3), 7, np.float32), (3, 2)) == 7).all()


def test_order_of_the_steps() -> None:
    """resize, crop, channel order, raw_scale, mean, scale: as pycaffe's Transformer and Caffe's transform_param."""
    way = Preprocess(crop=(5, 7), resize=(11, 13), channels="BGR", raw_scale=51, mean=(1, 2, 3), scale=0.5)
    item = way(picture(), (1, 3, 5, 7))
    part = GRADIENT[3:8, 3:10].astype(np.float64)[..., ::-1]
    assert np.allclose(item, ((part / 5 - [1, 2, 3]) * 0.5).transpose(2, 0, 1))
    assert item.dtype == np.float32
    assert item.flags.c_contiguous


def test_a_scale_for_each_channel() -> None:
    """As torchvision's Normalize: one over the standard deviation of each channel, in the order of the input."""
    deviations = np.array([58.395, 57.12, 57.375])
    way = Preprocess(channels="RGB", mean=(123.675, 116.28, 103.53), scale=tuple(1 / deviations))
    item = way(picture(), (1, 3, *GRADIENT.shape[:2]))
    expected = (GRADIENT - [123.675, 116.28, 103.53]) / deviations
    assert np.allclose(item, expected.transpose(2, 0, 1), atol=1e-6)
    assert way.describe((1, 3, 5, 7)).endswith("scale 0.0171248 0.017507 0.0174292")


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1)])
def test_scales_in_an_array(shape: tuple[int, ...]) -> None:
    way, same = (Preprocess().with_options(scale=s) for s in (np.array([0.5, 1, 2]).reshape(shape), (0.5, 1.0, 2.0)))
    assert way == same and way.describe((1, 3, 5, 7)) == "5x7 BGR, scale 0.5 1 2"
    assert np.array_equal(way(picture(), (1, 3, 5, 7)), same(picture(), (1, 3, 5, 7)))
    assert with_preprocess("", way, Path("x.toml")) == "[preprocess]\nscale = [0.5, 1.0, 2.0]\n"
    with pytest.raises(UsageError, match="2 scales; expected 1 or 3"):
        Preprocess(scale=np.ones(2))(picture(), (1, 3, 5, 7))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(11, 13), (2, 3, 11, 13), (1, 1, 3, 11, 13)])
def test_a_mean_of_other_axes_is_described_and_refused(shape: tuple[int, ...]) -> None:
    way = Preprocess(mean=np.ones(shape))
    assert way.describe((1, 3, 11, 13)) == "11x13 BGR, mean image"
    with pytest.raises(UsageError, match=f"the mean is {'x'.join(map(str, shape))}; expected 3 numbers or an image"):
        way(picture(), (1, 3, 11, 13))


@pytest.mark.parametrize("scale", [(), (1.0, 2.0), (1.0, 2.0, 3.0, 4.0)])
def test_scales_for_other_channels(scale: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match=f"{len(scale)} scales; expected 1 or 3"):
        Preprocess(scale=scale)(picture(), (1, 3, 5, 7))


@pytest.mark.parametrize(("channels", "shape", "first"), [(None, 3, 2), ("RGB", 3, 0), ("BGR", 3, 2)])
def test_channel_order(channels: str | None, shape: int, first: int) -> None:
    item = Preprocess(channels=channels)(picture(), (1, shape, 11, 13))
    assert np.array_equal(item[0], GRADIENT[..., first])


def test_one_channel_inputs_get_gray() -> None:
    item = Preprocess()(picture(), (1, 1, 11, 13))
    assert np.array_equal(item[0], np.asarray(picture().convert("L")))
    with pytest.raises(UsageError, match="a BGR image has 3 channels, the input blob is 1x1x11x13"):
        Preprocess(channels="BGR")(picture(), (1, 1, 11, 13))


def test_a_mean_image_is_cropped_like_the_image() -> None:
    mean = np.random.default_rng(1).random((3, 9, 11)).astype(np.float32)
    item = Preprocess(channels="RGB", mean=mean, resize=(11, 13))(picture(), (1, 3, 5, 7))
    assert np.allclose(item, GRADIENT[3:8, 3:10].transpose(2, 0, 1) - mean[:, 2:7, 2:9])
    with pytest.raises(UsageError, match="the mean is 3x2x2; expected 3 numbers or an image of 3x5x7"):
        Preprocess(mean=mean[:, :2, :2])(picture(), (1, 3, 5, 7))
    with pytest.raises(UsageError, match="the mean is 4"):
        Preprocess(mean=(1, 2, 3, 4))(picture(), (1, 3, 5, 7))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"crop": (4, 4)}, "images of 4x4 for an input blob of 5x7"),
        ({"resize": (4, 40)}, "a crop of 5x7 does not fit into images resized to 4x40"),
    ],
)
def test_sizes_that_cannot_be(options: dict[str, tuple[int, int]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Preprocess(**options)(picture(), (1, 3, 5, 7))


@pytest.mark.parametrize(
    "option",
    [
        *({"channels": each} for each in ("CMYK", "bgr", 3, b"BGR")),
        *(
            {"resize": each}
            for each in ((0, 5), 256, (256,), (256.5, 256), "256x256", (9, 9, 3), ("a", "b"), [None, 3])
        ),
        *({"crop": each} for each in ((5, SIZE + 1), True, "x", np.array([5.0, 5.0]))),
        *({"mean": each} for each in ("104", None, [None] * 3, (1j, 2, 3), np.array(["1", "2"]))),
        *({"scale": each} for each in ("0.5", None, 1j)),
        *({"raw_scale": each} for each in ("255", None)),
    ],
    ids=str,
)
def test_options_that_make_no_sense(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(UsageError, match=name):
        Preprocess(**option)
    if option[name] is not None:  # which stands for no change
        with pytest.raises(UsageError, match=name):
            Preprocess().with_options(**option)


@pytest.mark.parametrize("size", [[11, 13], np.array([11, 13]), (np.int64(11), 13)], ids=str)
def test_a_size_in_any_sequence(size: Any) -> None:
    item = Preprocess(crop=size, channels="RGB")(picture(), (1, 3, 11, 13))
    assert np.array_equal(item, GRADIENT.transpose(2, 0, 1))


@pytest.mark.parametrize("image", [None, "x.png", GRADIENT], ids=lambda image: type(image).__name__)
def test_what_is_no_picture(image: Any) -> None:
    with pytest.raises(UsageError, match=f"found {type(image).__name__}"):
        Preprocess()(image, (1, 3, 11, 13))


def test_chosen_is_true_where_an_option_was_set() -> None:
    assert not Preprocess().with_options(mean=None).chosen
    assert Preprocess().with_options(scale=2.0).chosen
    assert (
        Preprocess(mean=(104, 117, 123), resize=(256, 256), scale=0.5).describe((1, 3, 224, 224))
        == "256x256 -> 224x224 BGR, mean 104 117 123, scale 0.5"
    )


@pytest.mark.parametrize("case", ["camel", "goldfish", "cat"])
def test_a_photo_becomes_nearly_the_blob_that_opencv_makes(case: str) -> None:
    folder = need_models() / "googlenet"
    file = json.loads((folder / "meta.json").read_text())["cases"][case]["image"]
    from chai.util.paths import resource

    way = read_card(resource("prototxt", "googlenet.prototxt")).preprocess
    blob = way(files.read(folder / "images" / file), (1, 3, 224, 224))
    wanted = np.load(folder / "cases" / case / "input.npy")[0]
    difference = np.abs(blob - wanted)
    assert difference.max() <= 4  # JPEG decoders and 11-bit resize weights differ by a few of 255 here and there
    assert difference.mean() < 0.3
