"""JPEGs decoded at a part of their size: which, how large, and that nothing else changes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chai
from chai import Preprocess, UsageError, cli
from chai.images import files
from tests.images.test_pictures import LINES, net_of

RNG = np.random.default_rng(5)
SHAPE = (1, 3, 20, 24)
RESIZE = (30, 40)


def blocks(height: int, width: int, size: int = 16) -> np.ndarray:
    """Squares of one colour, of which a JPEG keeps every number nearly."""
    colours = RNG.integers(30, 220, (-(-height // size), -(-width // size), 3), dtype=np.uint8)
    return np.repeat(np.repeat(colours, size, 0), size, 1)[:height, :width]


def saved(path: Path, pixels: np.ndarray, orientation: int = 1, **options: object) -> Path:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif, quality=98, subsampling=0, **options)
    return path


def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The heights and widths that are resized."""
    sizes: list[tuple[int, int]] = []
    pixels = Preprocess.pixels

    def watched(self: Preprocess, image: Image.Image, shape: tuple[int, ...]) -> np.ndarray:
        sizes.append(image.size[::-1])
        return pixels(self, image, shape)

    monkeypatch.setattr(Preprocess, "pixels", watched)
    return sizes


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((59, 80), (59, 80)),  # one side is less than twice
        ((60, 79), (60, 79)),
        ((60, 80), (30, 40)),
        ((119, 200), (60, 100)),
        ((120, 160), (30, 40)),
        ((241, 333), (31, 42)),
        ((700, 900), (88, 113)),
        ((10, 500), (10, 500)),
    ],
)
@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("progressive", [False, True])
def test_the_part_of_its_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int],
    expected: tuple[int, int],
    orientation: int,
    progressive: bool,
) -> None:
    """At least the size of resize, whichever way up the file is; the picture has the window of its own size."""
    pixels = blocks(*size)
    stored = pixels if orientation == 1 else pixels.transpose(1, 0, 2)[::-1]  # Exif's 6: turn it clockwise
    file = saved(tmp_path / "x.jpg", np.ascontiguousarray(stored), orientation, progressive=progressive)
    sizes, how = decoded(monkeypatch), Preprocess(resize=RESIZE)
    unread = pytest.fail
    ((plain, _),) = files.items([file], how, SHAPE, unread)
    ((fast, _),) = files.items([file], Preprocess(resize=RESIZE, fast_decode=True), SHAPE, unread)
    assert sizes == [size, expected]
    assert fast == plain


def test_other_formats_are_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(blocks(100, 120)).save(tmp_path / "x.png")
    Image.fromarray(blocks(100, 120)).save(tmp_path / "x.ppm")
    sizes = decoded(monkeypatch)
    for name in ("x.png", "x.ppm"):
        files.picture(tmp_path / name, Preprocess(fast_decode=True), SHAPE)
    assert sizes == [(100, 120)] * 2


def test_the_pixels_are_means_of_the_files(tmp_path: Path) -> None:
    """Of squares: a picture of half the size has their colours, and an input as large is that picture."""
    pixels = blocks(80, 96)
    saved(tmp_path / "x.jpg", pixels)
    shape = (1, 3, 40, 48)
    fast, size = files.picture(tmp_path / "x.jpg", Preprocess(fast_decode=True), shape)
    assert size == (96, 80)
    means = pixels.reshape(40, 2, 48, 2, 3).mean((1, 3))
    assert np.abs(fast.pixels[0] - means).max() <= 4
    noise = RNG.integers(0, 256, (80, 96, 3), dtype=np.uint8)
    saved(tmp_path / "y.jpg", noise)
    plain = files.picture(tmp_path / "y.jpg", Preprocess(resize=(30, 36)), (1, 3, 30, 36))[0].pixels
    fast = files.picture(tmp_path / "y.jpg", Preprocess(resize=(30, 36), fast_decode=True), (1, 3, 30, 36))[0]
    assert np.abs(plain.astype(int) - fast.pixels).max() > 20


def test_a_network_decodes_fast_if_asked(tmp_path: Path) -> None:
    net = net_of(tmp_path, Preprocess(mean=(1.0, 2.0, 3.0)), LINES, SHAPE)
    file = saved(tmp_path / "x.jpg", RNG.integers(0, 256, (80, 96, 3), dtype=np.uint8))
    plain, fast = net.pictures([file]), net.pictures([file], fast_decode=True)
    wanted = files.picture(file, Preprocess(fast_decode=True), SHAPE)[0]
    assert np.array_equal(fast.pixels, wanted.pixels)
    assert not np.array_equal(fast.pixels, plain.pixels)
    assert np.array_equal(net.preprocess([file], fast_decode=True), fast.floats())
    assert np.array_equal(net.pictures([Image.open(file)], fast_decode=True).pixels, plain.pixels)  # is no file
    net.forward(fast)


def test_a_file_that_ends_early_is_refused_as_ever(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.fromarray(blocks(200, 240)).save(data, "JPEG")
    (tmp_path / "x.jpg").write_bytes(data.getvalue()[:900])
    for fast in (False, True):
        with pytest.raises(chai.ParseError, match="this is no readable image"):
            files.picture(tmp_path / "x.jpg", Preprocess(fast_decode=fast), SHAPE)
    with pytest.raises(UsageError, match="a gray image has 1 channel"):
        files.picture(tmp_path / "x.jpg", Preprocess(fast_decode=True, channels="gray"), SHAPE)


def test_run_says_that_it_decoded_fast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the line and the JSON that have the preprocessing."""
    file = saved(tmp_path / "x.jpg", RNG.integers(0, 256, (80, 96, 3), dtype=np.uint8))
    args = ["run", "digits", "-i", str(file)]
    assert cli.main([*args, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert cli.main([*args, "--json", "--fast-decode"]) == 0
    fast = json.loads(capsys.readouterr().out)
    assert fast["preprocess"] == plain["preprocess"] + ", fast decode"
    assert fast["images"] != plain["images"]
    assert cli.main([*args, "--fast-decode"]) == 0
    assert ", fast decode" in capsys.readouterr().out.splitlines()[0]
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8), np.float32))
    assert cli.main(["run", "digits", "-i", str(tmp_path / "x.npy"), "--fast-decode"]) == 2
    assert "--fast-decode does nothing for .npy inputs" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "evaluate"])
def test_help_says_that_the_pixels_are_others(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert "other pixels than Caffe's" in " ".join(capsys.readouterr().out.split())
