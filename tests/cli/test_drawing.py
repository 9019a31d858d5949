"""chai run --draw: boxes, classes of pixels and answers, where they belong in the image as it was read."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFont

import chai
from chai.cli.answers import Answers
from chai.cli.drawing import Drawing
from chai.errors import UsageError
from chai.graph import Graph
from chai.images import drawing as picture
from chai.images.drawing import LabelledBox
from chai.images.preprocess import UNIT, Preprocess
from chai.kernels.pixels import bilinear
from chai.layers import find
from chai.util.paths import resource
from tests.conftest import need_models

DIGITS = resource("prototxt", "digits_images")
RED = (128, 0, 0)  # PASCAL VOC's colour of class 1
RNG = np.random.default_rng(0)


def pixels(path: Path) -> Any:
    with Image.open(path) as image:
        assert image.mode == "RGB"
        return np.asarray(image)


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 120, (height, width, 3), np.uint8))


# -- real networks


def test_faces_are_framed_where_caffe_found_them(chai_command: Any, tmp_path: Path) -> None:
    folder = need_models() / "yuface_v1_ssd"
    image = folder / "images" / "ulf_1.jpg"
    (tmp_path / "labels.txt").write_text("background\nvisage \N{LATIN SMALL LETTER E WITH ACUTE}\u732b\n", "utf-8")
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    options = ["--mean", "103.94,116.78,123.68", "--device", "float", "--labels", "labels.txt", "--json"]
    done = chai_command("run", *files, "-i", image, *options, "--draw", "out.png")
    assert done.returncode == 0, done.stderr
    boxes = json.loads(done.stdout)["images"][0]["outputs"]["detection_out"]["boxes"]
    rows = np.load(folder / "cases" / "ulf_1" / "ref.npz")["detection_out"].reshape(-1, 7)
    caffe = rows[np.argsort(-rows[:, 2])][:, 3:]
    assert len(boxes) == len(caffe) > 5  # in JSON, whatever its score
    with Image.open(image) as opened:
        size = np.tile(opened.size, 2)
    places = np.array([box["pixels"] for box in boxes]) / size
    assert np.allclose(places, caffe.clip(0, 1), atol=2e-3)  # the JPEG decoder was another
    assert "wrote out.png" in done.stderr

    with Image.open(image) as opened:
        plain = np.asarray(opened.convert("RGB"))
    drawn = pixels(tmp_path / "out.png")
    assert drawn.shape == plain.shape
    height, width = plain.shape[:2]
    frame = max(2, min(width, height) // 150)
    untouched = np.ones((height, width), bool)
    for x0, y0, x1, y1 in places:
        left, right = round(x0 * width), round(x1 * width) - 1
        top, bottom = round(y0 * height), round(y1 * height) - 1
        y, x = (top + bottom) // 2, (left + right) // 2
        for line in (drawn[y, left : left + frame], drawn[y, right + 1 - frame : right + 1]):
            assert (line == RED).all()
        for line in (drawn[top : top + frame, x], drawn[bottom + 1 - frame : bottom + 1, x]):
            assert (line == RED).all()
        beside, below = [left - 1, left + frame, right - frame, right + 1], [bottom - frame, bottom + 1]
        assert (drawn[y, beside] == plain[y, beside]).all()
        assert (drawn[below, x] == plain[below, x]).all()
        untouched[max(0, top - 60) : bottom + 1, min(left, width - 300) : max(right, left + 300) + 1] = False
    assert (drawn[untouched] == plain[untouched]).all()
    assert untouched.mean() > 0.3


@pytest.mark.parametrize("scale", [1, 2])
def test_classes_are_coloured_where_their_pixels_are(scale: int, chai_command: Any, tmp_path: Path) -> None:
    folder = need_models() / "synth_fcn8ish"
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    image = noise(75 * scale, 61 * scale)
    image.save(tmp_path / "in.png")
    done = chai_command("run", *files, "-i", "in.png", "--device", "float", "--json", "--draw", "out.png")
    assert done.returncode == 0, done.stderr

    data = bilinear(np.asarray(image, np.float32), (61, 75)).transpose(2, 0, 1)[None, ::-1]
    classes = chai.Net(*files, device="float").forward(data=data)["argmax"][0, 0].astype(int)
    assert len(np.unique(classes)) == 5
    voc = np.array([(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128)])
    wanted = (np.asarray(image, int) + voc[classes].repeat(scale, 0).repeat(scale, 1)) / 2
    drawn = pixels(tmp_path / "out.png").astype(int)
    assert np.abs(drawn[: 61 * scale, : 75 * scale] - wanted).max() <= 1
    assert len(drawn) > 61 * scale  # the legend
    said = json.loads(done.stdout)["images"][0]["outputs"]["argmax"]["classes"]
    assert {c["index"]: pytest.approx(c["share"]) for c in said} == {c: (classes == c).mean() for c in range(5)}
    assert [c["share"] for c in said] == sorted((c["share"] for c in said), reverse=True)
    first = voc[said[0]["index"]]
    assert (drawn[61 * scale :] == first).all(-1).sum() > 20  # its square


def modes(folder: Path) -> list[Path]:
    colours = Image.fromarray(RNG.integers(0, 255, (37, 53, 3), np.uint8))
    files = []
    for mode, name in (("L", "l.png"), ("RGBA", "rgba.png"), ("P", "p.png"), ("1", "1.png"), ("LA", "la.png")):
        colours.convert(mode).save(folder / name)
        files.append(folder / name)
    for mode, name in (("CMYK", "cmyk.jpg"), ("L", "gray.jpg")):
        colours.convert(mode).save(folder / name)
        files.append(folder / name)
    Image.fromarray(RNG.integers(0, 60_000, (37, 53)).astype(np.uint16)).save(folder / "deep.png")
    return [*files, folder / "deep.png"]


def test_every_mode_of_image_goes_into_a_folder(chai_command: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = modes(tmp_path / "in")
    done = chai_command(
        "run", "digits", "-i", *files, "--device", "float", "--top", "2", "--draw", "out", "--batch", "3"
    )
    assert done.returncode == 0, done.stderr
    assert f"wrote {len(files)} pictures: out/l.png, out/rgba.png, out/p.png, ..., out/deep.png" in done.stderr
    for file in files:
        with Image.open(file) as image:
            if image.mode.startswith("I"):
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            wanted = np.asarray(image.convert("RGB"))
        drawn = pixels(tmp_path / "out" / f"{file.stem}.png")
        assert (drawn[:37, :53] == wanted).all()
        below = drawn[37:]
        assert len(below) > 20
        assert (below == 255).any() and (below < 128).any()  # text on white


def test_several_images_into_numbered_files(chai_command: Any, tmp_path: Path) -> None:
    files = sorted(DIGITS.glob("*.png"))[:3]
    done = chai_command("run", "digits", "-i", *files, "--device", "float", "--draw", "out.jpg")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.glob("out*")) == ["out-1.jpg", "out-2.jpg", "out-3.jpg"]
    assert "wrote 3 pictures: out-1.jpg, out-2.jpg, out-3.jpg" in done.stderr
    with Image.open(tmp_path / "out-2.jpg") as image:
        assert image.format == "JPEG"


def test_what_cannot_be_drawn_is_said(chai_command: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8), np.float32))
    image = sorted(DIGITS.glob("*.png"))[0]
    done = chai_command("run", "digits", "-i", "x.npy", image, "--device", "float", "--draw", "out.png")
    assert done.returncode == 0
    assert "wrote out.png" in done.stderr
    assert "--draw: nothing to draw for x.npy: no image" in done.stderr
    (tmp_path / "bad.png").write_bytes(image.read_bytes()[:40])
    done = chai_command("run", "digits", "-i", image, "bad.png", "--device", "float", "--draw", "two")
    assert done.returncode == 65
    assert [p.name for p in (tmp_path / "two").iterdir()] == [f"{image.stem}.png"]


@pytest.mark.parametrize(
    ("names", "written"),
    [
        ("x/a-3.png x/a.png y/a.png", "3 pictures: out/a-3.png, out/a.png, out/a-4.png"),
        ("x/a.png x/a.png", "out/a.png"),  # one image, named twice
    ],
)
def test_each_image_has_its_picture(names: str, written: str, chai_command: Any, tmp_path: Path) -> None:
    for i, name in enumerate(dict.fromkeys(names.split())):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((9 + i, 8), 50, np.uint8)).save(tmp_path / name)
    done = chai_command("run", "digits", "-i", *names.split(), "--device", "float", "--draw", "out")
    assert done.returncode == 0, done.stderr
    assert f"wrote {written}" in done.stderr.splitlines()
    names_written = [name.removeprefix("out/") for name in written.rpartition(": ")[2].split(", ")]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names_written)
    assert len({pixels(path).shape for path in (tmp_path / "out").iterdir()}) == len(names_written)


# -- places


def test_places(tmp_path: Path) -> None:
    files = [tmp_path / "a" / "x.jpg", tmp_path / "b" / "x.png", tmp_path / "b" / "y.png", tmp_path / "z.npy"]
    out = tmp_path / "out"
    assert [p.name for p in Drawing(out, files)._targets.values()] == ["x.png", "x-2.png", "y.png"]
    assert list(Drawing(out, files[:1])._targets.values()) == [out / "x.png"]
    assert list(Drawing(out / "p.JPG", files[:1])._targets.values()) == [out / "p.JPG"]
    with pytest.raises(UsageError, match=r"expected a folder or a file of \.png, \.jpg, \.jpeg"):
        Drawing(tmp_path / "p.gif", files)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "y.png").touch()
    for place, images in ((tmp_path / "b", files), (tmp_path / "b" / ".." / "b" / "y.png", files[2:3])):
        with pytest.raises(UsageError, match="would overwrite the image"):
            Drawing(place, images)
    (tmp_path / "loop").symlink_to("loop")
    assert Drawing(tmp_path / "loop", files[:1])._targets == {str(files[0]): tmp_path / "loop" / "x.png"}


def test_the_window_of_a_cropped_image() -> None:
    way = Preprocess(resize=(256, 512), crop=(224, 448))
    assert way.window((1024, 1024), (1, 3, 224, 448)) == (64.0, 64.0, 960.0, 960.0, 1024, 1024)
    assert Preprocess().window((53, 37), (1, 3, 10, 20)) == (0.0, 0.0, 53.0, 37.0, 53, 37)


def test_boxes_are_parts_of_the_crop(tmp_path: Path) -> None:
    """Listed as fractions of the crop and in pixels of the image, and drawn there."""
    from chai.cli import drawing

    way = Preprocess(resize=(100, 100), crop=(50, 50))
    rows = np.array([[0, 2, 0.5, 0.0, 0.5, 1.0, 1.0]], np.float32)[None, None]
    window = way.window((200, 400), (1, 3, 50, 50))
    answers = Answers(a_net((1, 1, 7), "DetectionOutput"), []).of_image({"out": rows}, 0, 1, window)[0]
    (box,) = answers["out"]["boxes"]
    assert box["index"] == 1 and box["pixels"] == [50, 200, 150, 300]
    drawn = np.asarray(drawing.drawn(noise(200, 400), answers, {}, window))  # type: ignore[arg-type]
    green = (drawn == (0, 128, 0)).all(-1)
    assert green[299, 50:150].all() and green[298, 50:150].all() and not green[300:].any()
    assert green[200:300, [50, 149]].all() and not green[200:300, [49, 150]].any()


# -- drawing


def test_the_words_of_a_caption_are_apart(tmp_path: Path) -> None:
    """The gap between two words is wider than any between letters: "says 0", not "says0"."""
    widest = {}
    for caption in ("says", "0123456789", "says 0", "is 0", "says 7  1.000"):
        picture.contact_sheet(tmp_path / "sheet.png", [(noise(8, 8), caption, True)], 1, "")
        sheet = np.asarray(Image.open(tmp_path / "sheet.png"))
        below = sheet[np.nonzero((sheet != 255).any((1, 2)))[0].min() + 102 :]  # the picture has 96 rows, its frame 4
        inked = np.nonzero((below < 160).any((0, 2)))[0]
        widest[caption] = int(np.diff(inked).max())
    letters = max(widest.pop("says"), widest.pop("0123456789"))
    assert all(gap > letters for gap in widest.values()), (letters, widest)


def test_colours_are_pascals() -> None:
    known = {0: (0, 0, 0), 1: (128, 0, 0), 2: (0, 128, 0), 3: (128, 128, 0), 4: (0, 0, 128), 7: (128, 128, 128)}
    known |= {8: (64, 0, 0), 15: (192, 128, 128), 20: (0, 64, 128), 255: (224, 224, 192)}
    assert {i: picture.class_colour(i) for i in known} == known
    assert len({picture.class_colour(i) for i in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("corners", "wanted"),
    [
        ((10, 5, 20, 15), (10, 5, 19, 14)),
        ((-7.2, -3, 20, 15), (0, 0, 19, 14)),
        ((30, 20, 1e30, 1e30), (30, 20, 52, 36)),
        ((9.6, 4.4, 20.4, 15.6), (10, 4, 19, 15)),
        ((-50, -50, -1, -1), None),
        ((53, 0, 60, 10), None),
        ((20, 5, 10, 15), None),
        ((10, 5, 10.2, 15), None),
        ((float("nan"), 5, 20, 15), None),
        ((float("-inf"), 5, float("inf"), 15), None),
    ],
)
def test_frames_are_clipped(corners: tuple[float, float, float, float], wanted: tuple[int, ...] | None) -> None:
    image = noise(53, 37)
    drawn = np.asarray(picture.with_boxes(image, [LabelledBox(corners, "", (1, 2, 255))]))
    frame = (drawn == (1, 2, 255)).all(-1)
    if wanted is None:
        assert (drawn == np.asarray(image)).all()
        return
    left, top, right, bottom = wanted
    assert frame[[top, bottom], left : right + 1].all() and frame[top : bottom + 1, [left, right]].all()
    inside = np.zeros_like(frame)
    inside[top : bottom + 1, left : right + 1] = True
    inside[top + 2 : bottom - 1, left + 2 : right - 1] = False
    assert (frame == inside).all()


def test_the_first_of_two_frames_lies_on_top() -> None:
    boxes = [LabelledBox((5, 20, 30, 35), "", (255, 0, 0)), LabelledBox((5, 20, 30, 35), "", (0, 255, 0))]
    assert picture.with_boxes(noise(53, 37), boxes).getpixel((5, 30)) == (255, 0, 0)


TEXTS = ["", "caf\N{LATIN SMALL LETTER E WITH ACUTE} \u732b \U0001f600", "two\nlines\x1b[31m", "x" * 5000, "\u202eevil"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("bitmap", [True, False])
def test_any_label_can_be_written(text: str, bitmap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if bitmap:  # the only font of Pillow without FreeType, and of Pillow before 10.1
        load = getattr(ImageFont, "load_default_imagefont", None)
        if load is None:
            pytest.skip("this Pillow has no way to ask for the bitmap font")
        font = load()
        monkeypatch.setattr(ImageFont, "load_default", lambda: font)
    image = noise(53, 37)
    drawn = picture.with_boxes(image, [LabelledBox((10, 25, 40, 36), text, (255, 255, 0))])
    assert drawn.size == image.size
    assert (np.asarray(drawn) == (255, 255, 0)).all(-1).sum() > 80  # frame, and the tag's ground
    sheet = picture.with_lines(image, [(text, None), (text, (0, 0, 255))])
    assert sheet.height > image.height + 20
    assert sheet.width < 1500
    assert (np.asarray(sheet)[:37, :53] == np.asarray(image)).all()


def test_labels_are_brought_to_ascii() -> None:
    assert picture._drawable("Caf\N{LATIN SMALL LETTER E WITH ACUTE} \u732b\n\ufb01n") == "Cafe ??fin"


def test_tags_stand_out() -> None:
    assert picture._contrast((255, 255, 0)) == (0, 0, 0)
    assert picture._contrast((0, 0, 128)) == (255, 255, 255)


# -- what is a map of classes


def a_net(shape: tuple[int, ...], type: str = "Convolution", **params: Any) -> Any:
    """A network whose output "out" of a batch of two is by a layer of this type."""
    layer_type = find(type)
    assert layer_type is not None
    layer = layer_type("last", ("x",), ("out",), layer_type.Params(**params))
    graph = Graph("of one layer", [layer], {"x": shape}, ["out"], {"out": "out"})
    shapes = {"data": (2, 3, 5, 7), "out": (2, *shape)}
    return SimpleNamespace(graph=graph, inputs=["data"], shapes=shapes, shapes_of=lambda _: (2, *shape))


@pytest.mark.parametrize(
    ("shape", "labels", "is_map"),
    [
        ((4, 5, 7), 0, True),
        ((3, 5, 7), 0, False),  # rather a picture
        ((1, 5, 7), 0, False),
        ((4, 5, 6), 0, False),  # not the input's size
        ((3, 5, 7), 3, True),
        ((4, 2, 3), 4, True),
        ((4, 5, 7), 3, False),
        ((4, 1, 1), 4, False),
        ((4,), 4, False),
    ],
)
def test_scores_per_pixel_are_told_from_other_blobs(shape: tuple[int, ...], labels: int, is_map: bool) -> None:
    values = RNG.standard_normal((2, *shape))
    answers, maps = Answers(a_net(shape), ["x"] * labels).of_image({"out": values}, 1, 2, UNIT)
    assert ("classes" in answers["out"]) == is_map
    if is_map:
        best = [
            [max(range(shape[0]), key=lambda c: values[1, c, i, j]) for j in range(shape[2])] for i in range(shape[1])
        ]
        assert maps["out"].tolist() == best


def test_arg_max_is_a_map_unless_it_holds_values() -> None:
    values = RNG.integers(0, 5, (2, 1, 3, 4)).astype(np.float32)
    for axis, out_max_val, classes in ((1, False, True), (1, True, False), (None, False, False)):
        net = a_net((1, 3, 4), "ArgMax", axis=axis, out_max_val=out_max_val)
        answers, maps = Answers(net, []).of_image({"out": values}, 0, 2, UNIT)
        assert ("classes" in answers["out"]) == ("out" in maps) == classes
        if classes:
            assert (maps["out"] == values[0, 0]).all()


ROWS = [[0, 1, 0.3, 0, 0, 1, 1], [0, 1, 0.2, 0, 0, 1, 1], [0, 2, 0.9, 0, 0, 1, 1], [1, 1, 1.0, 0, 0, 1, 1]]
ROWS += [[0, 1, 0.5, 0, 0, 1, 1], [0, -1, -1, -1, -1, -1, -1]]


@pytest.mark.parametrize(
    ("top", "threshold", "scores", "more", "below"),
    [
        (None, 0.25, [0.9, 0.5, 0.3], 0, 1),
        (None, 0.0, [0.9, 0.5, 0.3, 0.2], 0, 0),
        (2, 0.25, [0.9, 0.5], 1, 1),
        (None, 0.95, [], 0, 4),
    ],
)
def test_boxes_are_listed_best_first_whatever_their_class(
    top: int | None, threshold: float, scores: list[float], more: int, below: int
) -> None:
    rows = np.array(ROWS, np.float32)[None, None]
    net, window = a_net((1, 1, 7), "DetectionOutput"), UNIT
    listing = Answers(net, [], top, threshold).of_image({"out": rows}, 0, 2, window)[0]["out"]
    assert [round(b["score"], 2) for b in listing["boxes"]] == scores
    assert (listing["more"], listing["below_threshold"]) == (more, below)


def test_a_map_of_a_letterbox_covers_the_picture_alone() -> None:
    """Row i of a picture of half the input's height is row i + 2 of the map: the borders are left out."""
    window = Preprocess(resize="letterbox").window((8, 4), (1, 3, 8, 8))
    classes = np.arange(8).reshape(-1, 1).repeat(8, 1)
    drawn = np.asarray(picture.with_classes(Image.new("RGB", (8, 4), (40, 80, 120)), classes, window)).astype(int)
    for row in range(4):
        wanted = (np.array([40, 80, 120]) + picture.class_colour(row + 2)) / 2
        assert np.abs(drawn[row] - wanted).max() <= 1
