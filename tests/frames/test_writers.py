"""What is written plays, also where the disk was full."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.errors import UsageError
from chai.frames.sources import RawFrame, source
from chai.frames.threads import Stop
from chai.frames.writers import FrameFolder, MjpegFile, Mp4, Writer, writer
from chai.images.files import of_pixels

from .common import pyav

pytestmark = pytest.mark.extras
FRAMES = 60
SUFFIXES = [".mjpeg", ".mp4", ""]


def pixels(number: int) -> np.ndarray[Any, Any]:
    """A frame of odd size whose gray level is its number."""
    return np.full((35, 53, 3), 4 * number, np.uint8)


def written(path: Path) -> list[RawFrame]:
    return list(source(path).frames(Stop()))


def number(frame: RawFrame) -> int:
    """The number that a frame was written as."""
    return round(float(np.asarray(frame.picture()[0])[:34, :52].mean()) / 4)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read_again(tmp_path: Path, suffix: str) -> None:
    if suffix == ".mp4":
        pyav()
    out = writer(tmp_path / f"out{suffix}")
    for i in range(FRAMES):
        out.add(of_pixels(pixels(i)), i / 20)
    out.close()
    assert [path.name for path in tmp_path.iterdir()] == [f"out{suffix}"]
    frames = written(tmp_path / f"out{suffix}")
    assert [number(frame) for frame in frames] == list(range(FRAMES))
    if suffix == ".mp4":
        np.testing.assert_allclose([frame.seconds for frame in frames], np.arange(FRAMES) / 20, atol=1e-3)
        assert frames[0].picture()[1] == (54, 36)  # even, as H.264 has them


@pytest.mark.parametrize("kind", [MjpegFile, Mp4])
def test_a_full_disk_leaves_what_came_before(
    tmp_path: Path, kind: type[Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a part is written before the error, as the system does it."""
    if kind is Mp4:
        pyav()
    path = tmp_path / ("out.mp4" if kind is Mp4 else "out.mjpeg")
    (path).write_bytes(b"the old file")
    out: Any = kind(path)  # type: ignore[call-arg]
    file = out if kind is MjpegFile else out._file
    real, room = file.file, [8_000 if kind is Mp4 else 20_000]

    class Full:
        def write(self, data: Any) -> int:
            if not room[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            done: int = real.write(data[: room[0]])
            room[0] -= done
            return done

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    file.file = Full()
    rng = np.random.default_rng(1)
    count = 0
    with pytest.raises(OSError, match="No space left") as full:
        for count in range(1000):
            out.add(of_pixels(rng.integers(0, 256, (32, 48, 3), np.uint8)), count / 25)
    assert full.value.filename == str(path)
    try:
        out.close()
    except OSError as error:
        assert kind is Mp4, error  # the last frames of the encoder find no room, either
    frames = written(path)
    assert 0 < len(frames) <= count
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_file_that_was_not_closed_plays_up_to_its_last_fragment(tmp_path: Path) -> None:
    """As after kill -9."""
    pyav()
    out = Mp4(tmp_path / "out.mp4")
    for i in range(FRAMES):
        out.add(of_pixels(pixels(i)), i / 25)
    (tmp_path / "copy.mp4").write_bytes(next(tmp_path.glob("out.mp4.*.part")).read_bytes())
    out.close()
    numbers = [number(frame) for frame in written(tmp_path / "copy.mp4")]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= FRAMES - 25


def test_an_empty_video_is_no_file(tmp_path: Path) -> None:
    MjpegFile(tmp_path / "out.mjpeg").close()
    assert list(tmp_path.iterdir()) == []


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected \.mp4, \.mjpeg, \.mjpg or a folder"):
        writer(tmp_path / "out.wmv")


def test_a_frame_in_a_folder_is_whole_or_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of it is written before the error, as by a system whose disk is full."""
    frame = tmp_path / "frame_000000.jpg"
    frame.write_bytes(b"of the video before")
    whole = Path.write_bytes

    def half(path: Path, data: bytes) -> int:
        whole(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="No space left") as full:
        FrameFolder(tmp_path).add(of_pixels(pixels(3)), 0.0)
    assert full.value.filename == str(frame)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [(frame.name, b"of the video before")]
