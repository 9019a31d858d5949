"""Files of images, arrays, means and labels."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from chai import ParseError, Preprocess, UsageError
from chai.images import files
from chai.images.preprocess import UNIT, whole
from chai.parser.schema import message_class
from chai.util.data import npy as arrays
from tests.images.test_preprocess import picture


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "I;16", "1", "LA"])
def test_every_mode_of_picture_becomes_rgb(tmp_path: Path, mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray((np.arange(143, dtype=np.uint16) * 400).reshape(11, 13))
    else:
        image = picture().convert(mode)
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    image.save(path)
    item = Preprocess()(files.read(path), (1, 3, 11, 13))
    assert item.shape == (3, 11, 13)
    if mode == "I;16":
        assert np.abs(item[0] - (np.arange(143) * 400 >> 8).reshape(11, 13)).max() == 0


def test_a_picture_is_turned_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees
    picture().save(tmp_path / "x.png", exif=exif)
    assert files.read(tmp_path / "x.png").size == (11, 13)


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a" + b"\0" * 50, b"\xff\xd8\xff\xe0" + b"\0" * 20]
)
def test_what_is_no_image_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.jpg").write_bytes(data)
    with pytest.raises(ParseError, match=r"x\.jpg: this is no readable image"):
        files.read(tmp_path / "x.jpg")


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
        files.read(tmp_path / "x.png")


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
        files.read_array(tmp_path / "x.npy")


def test_mean_files(tmp_path: Path) -> None:
    mean = np.random.default_rng(2).random((3, 5, 7)).astype(np.float32)
    np.save(tmp_path / "mean.npy", mean)
    blob = message_class("BlobProto")(num=1, channels=3, height=5, width=7, data=mean.ravel())
    (tmp_path / "mean.binaryproto").write_bytes(blob.SerializeToString())
    assert np.array_equal(files.read_mean(tmp_path / "mean.npy"), mean)
    assert np.array_equal(files.read_mean(tmp_path / "mean.binaryproto"), mean)


def test_find_keeps_order_and_skips_other_files(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpeg", "README.md", "c.npy"):
        (tmp_path / name).write_bytes(b"")
    assert [p.name for p in files.find([tmp_path])] == ["a.jpeg", "b.PNG", "c.npy"]
    with pytest.raises(UsageError, match="there is no image 'nothing'"):
        files.find(["nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no image in"):
        files.find([tmp_path / "empty"])


def test_labels_lose_their_synset_id(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("n01440764 tench, Tinca tinca\nnot a synset\nn0 x\n")
    assert files.read_labels(tmp_path / "l.txt") == ["tench, Tinca tinca", "not a synset", "n0 x"]


def test_pictures_that_are_not_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("b.webp", "a.GIF", "e.tif", "d.tiff", "x.png", "notes.txt", "c.jpg"):
        (tmp_path / name).touch()
    (tmp_path / "z.webp").mkdir()
    assert [file.name for file in files.find([tmp_path])] == ["c.jpg", "x.png"]
    (record,) = caplog.records
    begin = f"4 files are left out of {tmp_path} (a.GIF, b.webp, d.tiff, ...): convert to one of .jpg .jpeg .png"
    assert record.levelname == "WARNING" and record.message.startswith(begin)
    caplog.clear()
    assert files.find([tmp_path / "b.webp"]) == [tmp_path / "b.webp"]  # reading it says why it cannot be
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "a.webp").touch()
    with pytest.raises(UsageError, match="there is no image in"):
        files.find([tmp_path / "only"])
    assert [record.message[:45] for record in caplog.records] == [f"1 file is left out of {tmp_path / 'only'}"[:45]]


def test_an_array_is_read_item_by_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only as many as are asked for, which matters in a file of gigabytes."""
    pixels = np.random.default_rng(3).integers(0, 256, (5, 1, 3, 7), np.uint8)
    np.save(tmp_path / "a.npy", pixels)
    floats, shapes = arrays.floats, list[tuple[int, ...]]()
    monkeypatch.setattr(arrays, "floats", lambda array, path: shapes.append(array.shape) or floats(array, path))
    pairs = [*islice(files.items([tmp_path / "a.npy"], Preprocess(), (1, 1, 3, 7), pytest.fail), 2)]
    assert [part for part, _ in pairs] == [(f"{tmp_path / 'a.npy'}[{i}]", whole(7, 3)) for i in range(2)]
    assert all(np.array_equal(item, pixels[i]) and item.dtype == np.float32 for i, (_, item) in enumerate(pairs))
    assert shapes == [(1, 3, 7)] * 2


def test_what_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    """Of a file in which an item cannot be read, the items before it are images all the same."""
    large = np.zeros((4, 2, 3, 7))
    large[2:] = 1e300
    for name, array in (("a", large), ("c", large[0]), ("d", large[:1]), ("e", np.ones(5))):
        np.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "b.npy").write_bytes(b"no array")
    told: list[str] = []
    paths = sorted(tmp_path.iterdir())
    steps, shape = Preprocess(), (1, 2, 3, 7)
    parts = [part for part, _ in files.items(paths, steps, shape, lambda file, error: told.append(error.headline))]
    names = [(Path(part.name).name, part.window) for part in parts]
    assert names == [(name, whole(7, 3)) for name in ("a.npy[0]", "a.npy[1]", "c.npy", "d.npy")] + [("e.npy", UNIT)]
    assert [line.partition(f"{tmp_path}/")[2][:20] for line in told] == ["a.npy: its numbers a", "b.npy: this is no re"]
    listed = [(name, item) for _, item, name in files.places(paths, len(shape))]
    assert [item for _, item in listed] == [0, 1, 2, 3, None, None, 0, None]
    assert {*(part.name for part in parts)} < {*(name for name, _ in listed)}
