"""Images on their way into a network."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chai import ParseError, Preprocess, UsageError
from chai.graph.params import SIZE
from chai.images import preprocess
from chai.parser.schema import message_class
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
    found = preprocess.bilinear(pixels, size)
    assert found.shape == (*size, 3)
    assert np.abs(found - naive_bilinear(pixels, size)).max() <= 0.5 + 1e-3  # rounded to whole values


def test_a_one_pixel_image_can_grow() -> None:
    assert (preprocess.bilinear(np.full((1, 1, 3), 7, np.float32), (3, 2)) == 7).all()


def test_order_of_the_steps() -> None:
    """resize, crop, channel order, raw_scale, mean, scale: as pycaffe's Transformer and Caffe's transform_param."""
    way = Preprocess(crop=(5, 7), resize=(11, 13), channels="BGR", raw_scale=51, mean=(1, 2, 3), scale=0.5)
    item = way(picture(), (1, 3, 5, 7))
    part = GRADIENT[3:8, 3:10].astype(np.float64)[..., ::-1]
    assert np.allclose(item, ((part / 5 - [1, 2, 3]) * 0.5).transpose(2, 0, 1))
    assert item.dtype == np.float32
    assert item.flags.c_contiguous


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


@pytest.mark.parametrize("options", [{"channels": "CMYK"}, {"resize": (0, 5)}, {"crop": (5, SIZE + 1)}])
def test_options_that_make_no_sense(options: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Preprocess().with_options(**options)


def test_given_says_whether_anybody_chose() -> None:
    assert not Preprocess().with_options(mean=None).given
    assert Preprocess().with_options(scale=2.0).given
    assert (
        Preprocess(mean=(104, 117, 123), resize=(256, 256), scale=0.5).describe((1, 3, 224, 224))
        == "256x256 -> 224x224 BGR, mean 104 117 123, scale 0.5"
    )


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "I;16", "1", "LA"])
def test_every_mode_of_picture_becomes_rgb(tmp_path: Path, mode: str) -> None:
    if mode == "I;16":
        made = Image.fromarray((np.arange(143, dtype=np.uint16) * 400).reshape(11, 13))
    else:
        made = picture().convert(mode)
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    made.save(path)
    item = Preprocess()(preprocess.read(path), (1, 3, 11, 13))
    assert item.shape == (3, 11, 13)
    if mode == "I;16":
        assert np.abs(item[0] - (np.arange(143) * 400 >> 8).reshape(11, 13)).max() == 0


def test_a_picture_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    picture().save(tmp_path / "x.png", exif=exif)
    assert preprocess.read(tmp_path / "x.png").size == (11, 13)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a" + b"\0" * 50, b"\xff\xd8\xff\xe0" + b"\0" * 20]
)
def test_what_is_no_image_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.jpg").write_bytes(data)
    with pytest.raises(ParseError, match=r"x\.jpg: this is no readable image"):
        preprocess.read(tmp_path / "x.jpg")


def test_a_picture_of_too_many_pixels_is_refused_unopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from chai.env import env
    from chai.limits import limits

    picture().save(tmp_path / "x.png")
    monkeypatch.setenv("CHAI_LIMITS", "image_pixels=100")
    env.cache_clear()
    limits.cache_clear()
    with pytest.raises(
        ParseError,
        match=r"13x11 pixels: 143 exceeds the limit image_pixels=100 \(raise it with CHAI_LIMITS=image_pixels=N\)",
    ):
        preprocess.read(tmp_path / "x.png")


def npy(header: str) -> bytes:
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999, 99999)}"),  # 37 GiB in a file of 128 bytes
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}") + b"cos\nsystem\n",  # a pickle
        npy("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}") + b"\0" * 16,
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"),
        npy("__import__('os').abort()"),
        b"PK\x03\x04" + b"\0" * 30,
    ],
)
def test_hostile_arrays_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(ParseError, match=r"x\.npy: "):
        preprocess.read_array(tmp_path / "x.npy")


def test_mean_files(tmp_path: Path) -> None:
    mean = np.random.default_rng(2).random((3, 5, 7)).astype(np.float32)
    np.save(tmp_path / "mean.npy", mean)
    blob = message_class("BlobProto")(num=1, channels=3, height=5, width=7, data=mean.ravel())
    (tmp_path / "mean.binaryproto").write_bytes(blob.SerializeToString())
    assert np.array_equal(preprocess.read_mean(tmp_path / "mean.npy"), mean)
    assert np.array_equal(preprocess.read_mean(tmp_path / "mean.binaryproto"), mean)


def test_find_keeps_order_and_skips_other_files(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpeg", "README.md", "c.npy"):
        (tmp_path / name).write_bytes(b"")
    assert [p.name for p in preprocess.find([tmp_path])] == ["a.jpeg", "b.PNG", "c.npy"]
    with pytest.raises(UsageError, match="there is no image 'nothing'"):
        preprocess.find(["nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no image in"):
        preprocess.find([tmp_path / "empty"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "this is no TOML"),
        ("titel = 'x'", "unknown key 'titel'"),
        ("[preprocess]\nmeen = [1]", "no key 'meen'"),
        ("[preprocess]\nchannels = 'bgr'", "channels: expected one of BGR, RGB, gray, found 'bgr'"),
        ("[preprocess]\nresize = 256", r"resize: expected \[height, width\]"),
        ("[preprocess]\nmean = ['a']", "mean: expected numbers"),
        ("[preprocess]\nscale = true", "scale: expected numbers"),
        ("[preprocess]\nresize = [0, 5]", "resize"),
        ("preprocess = 3", "expected a table"),
        ("labels = 'synset_words.txt'", "labels: expected a list of texts"),  # a file names no other file
    ],
)
def test_a_card_that_is_wrong_says_where(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "net.toml").write_text(text)
    with pytest.raises(ParseError, match=words) as caught:
        preprocess.read_card(tmp_path / "net.prototxt")
    assert caught.value.path.endswith("net.toml")


def test_a_card(tmp_path: Path) -> None:
    assert preprocess.read_card(tmp_path / "net.prototxt") == preprocess.Card()
    (tmp_path / "net.toml").write_text(
        'title = "t"\nlabels = ["a", "b"]\n[preprocess]\nmean = [1, 2.5, 3]\ncrop = [5, 7]\n'
    )
    card = preprocess.read_card(tmp_path / "net.prototxt")
    assert card.labels == ("a", "b")
    assert card.preprocess == Preprocess(mean=(1, 2.5, 3), crop=(5, 7), given=True)


CARD = """# mine
title = "Cats"
[preprocess]   # as trained
resize = [256, 256]
mean = [1, 2, 3]

[weights]
source = "somewhere"
"""
HOW = Preprocess().with_options(crop=(4, 6), channels="RGB", mean=(0.5, 104.0, 1e-7), raw_scale=1.0, scale=0.1)


def test_a_cards_preprocessing_can_be_replaced() -> None:
    text = preprocess.with_preprocess(CARD, HOW, Path("x.toml"), "a note")
    before, after = CARD.split("[preprocess]")[0], CARD[CARD.index("[weights]") :]
    assert text.startswith(before) and text.endswith("\n" + after) and "# a note\n" in text and "256" not in text
    again = preprocess.with_preprocess(text, HOW, Path("x.toml"))
    assert preprocess.parse_card(again.split("[weights]")[0], Path("x.toml")).preprocess == HOW
    assert preprocess.with_preprocess(CARD, Preprocess(), Path("x.toml")) == before + after


@pytest.mark.parametrize("text", ["", 'title = "x"', 'title = "x"\n\n\n', "[preprocess]", "[preprocess]\nscale = 9"])
def test_a_card_gets_preprocessing(text: str) -> None:
    found = preprocess.parse_card(preprocess.with_preprocess(text, HOW, Path("x.toml")), Path("x.toml"))
    assert found.preprocess == HOW and found.title == ("x" if "title" in text else "")


def test_a_mean_image_has_no_place_in_a_card() -> None:
    how = Preprocess().with_options(mean=np.ones((3, 4, 6)), scale=2.0)
    assert (
        preprocess.with_preprocess("", how, Path("x.toml"), "mean: m.npy")
        == "[preprocess]\n# mean: m.npy\nscale = 2.0\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "preprocess = { scale = 2 }\n",
        "preprocess.scale = 2\n",
        "title = '''\n[preprocess]\nis not what it seems'''\n",
        "preprocess = [",
    ],
)
def test_a_card_that_cannot_be_changed_is_refused_before_it_is_harmed(text: str) -> None:
    with pytest.raises(ParseError):
        preprocess.with_preprocess(text, HOW, Path("x.toml"))


def test_labels_lose_their_synset_id(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("n01440764 tench, Tinca tinca\nnot a synset\nn0 x\n")
    assert preprocess.read_labels(tmp_path / "l.txt") == ["tench, Tinca tinca", "not a synset", "n0 x"]


@pytest.mark.parametrize("case", ["camel", "goldfish", "cat"])
def test_a_photo_becomes_nearly_the_blob_that_opencv_makes(case: str) -> None:
    folder = need_models() / "googlenet"
    file = json.loads((folder / "meta.json").read_text())["cases"][case]["image"]
    from chai.util.paths import resource

    way = preprocess.read_card(resource("prototxt", "googlenet.prototxt")).preprocess
    found = way(preprocess.read(folder / "images" / file), (1, 3, 224, 224))
    wanted = np.load(folder / "cases" / case / "input.npy")[0]
    difference = np.abs(found - wanted)
    assert difference.max() <= 4  # JPEG decoders and 11-bit resize weights differ by a few of 255 here and there
    assert difference.mean() < 0.3
