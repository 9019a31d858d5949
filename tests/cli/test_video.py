"""chai run on videos: what is printed, drawn, saved and shown, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from chai.cli import main
from chai.frames.sources import source
from chai.frames.threads import Stop
from chai.images.drawing import class_colour
from chai.quantizer import quantize
from chai.zoo.locate import locate
from tests.cli.test_interrupted import ctrl_c_works, of_session
from tests.conftest import HANG
from tests.detect.shipped import NETWORK, is_right
from tests.frames.common import HEIGHT, WIDTH, Truth, clip, jpeg, mjpeg, pyav

pytestmark = pytest.mark.extras
FRAMES = 12


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clip."""
    mjpeg(tmp_path / "clip.mjpeg", FRAMES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def truths() -> list[Truth]:
    return [truth for _, truth in clip(FRAMES)]


def run(*args: str) -> int:
    return main(["run", NETWORK, *args])


def test_a_line_for_each_frame(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-i", "clip.mjpeg") == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [re.fullmatch(r" *(\d+) +([\d.]+) s  (.*)", line) for line in lines[1:-2]]
    assert [int(row[1]) for row in rows if row] == list(range(FRAMES))
    for row, truth in zip(rows, truths()):
        assert row is not None
        words = sorted(text.split()[0] for text in row[3].split(", "))
        assert words == (sorted(str(digit.label) for digit in truth) or ["no"])
    assert re.match(
        r"digits-detector   device emulator   [\d.]+ frames/second   12 frames shown, 0 dropped, 12 read", lines[-2]
    )
    assert re.match(r"a frame   read [\d.]+ ms   host [\d.]+ ms   overlay [\d.]+ ms   draw [\d.]+ ms", lines[-1])


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-i", "clip.mjpeg", "--json", "-q") == 0
    result = json.loads(capsys.readouterr().out)
    assert [frame["frame"] for frame in result["frames"]] == list(range(FRAMES))
    for frame, truth in zip(result["frames"], truths()):
        boxes = frame["outputs"]["detections"]["boxes"]
        assert is_right(
            np.array([[0, box["index"], box["score"], *box["pixels"]] for box in boxes]).reshape(-1, 7), truth
        )
    assert (result["read"], result["dropped"], result["shown"], result["failed"]) == (FRAMES, 0, FRAMES, [])
    assert [step["lane"] for step in result["lanes"]] == ["read", "host", "overlay", "draw"]


@pytest.mark.parametrize("out", ["out.mjpeg", "out.mp4", "drawn"])
def test_what_is_saved_shows_the_boxes(folder: Path, out: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somewhere on the frame of each box its colour is not the frame's own any more."""
    if out == "out.mp4":
        pyav()
    assert run("-i", "clip.mjpeg", "-o", out) == 0
    assert capsys.readouterr().err.splitlines()[-1] == f"wrote {out} (12 frames)"
    frames = [np.asarray(raw.picture()[0]).astype(int) for raw in source(out).frames(Stop())]
    assert len(frames) == FRAMES
    for image, (frame, truth) in zip(frames, clip(FRAMES)):
        changed = np.abs(image - frame).max(2) > 60
        for _, left, top, right, bottom in truth:
            assert changed[top:bottom, left:right].any()


def test_a_folder_is_a_video_if_one_is_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("frames").mkdir()
    for i, (frame, _) in enumerate(clip(3)):
        Image.fromarray(frame).save(f"frames/{i}.png")
    assert run("-i", "frames") == 0
    assert "frames/0.png" in capsys.readouterr().out
    assert run("-i", "frames", "-o", "out.mjpeg") == 0
    assert "3 frames shown" in capsys.readouterr().out


@pytest.mark.parametrize("raw", [False, True])
def test_frames_on_standard_input(folder: Path, raw: bool) -> None:
    command = [sys.executable, "-m", "chai", "run", NETWORK, "-i", "-", "--json"]
    stream = b"".join(frame.tobytes() if raw else jpeg(frame) for frame, _ in clip(5))
    more = ["--raw", f"{HEIGHT}x{WIDTH}"] if raw else []
    done = subprocess.run([*command, *more], input=stream, capture_output=True, check=True)
    assert len(json.loads(done.stdout)["frames"]) == 5


def test_a_torn_clip(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The frames before are shown and saved; exit code 65."""
    data = Path("clip.mjpeg").read_bytes()
    Path("clip.mjpeg").write_bytes(data[:-20])
    assert run("-i", "clip.mjpeg", "-o", "out.mjpeg", "--json") == 65
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert len(result["frames"]) == FRAMES - 1
    assert result["failed"] == [{"file": "clip.mjpeg", "error": "clip.mjpeg: the stream ends inside frame 11"}]
    assert printed.err.splitlines()[-1] == "error: clip.mjpeg: the stream ends inside frame 11"
    assert len(list(source("out.mjpeg").frames(Stop()))) == FRAMES - 1


@pytest.mark.parametrize("more", [[], ["--raw", "24x40"]])
def test_an_empty_pipe(folder: Path, more: list[str]) -> None:
    command = [sys.executable, "-m", "chai", "run", NETWORK, "-i", "-", "--json", *more]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    assert (done.returncode, done.stdout) == (65, b"")
    assert b"error: stdin: there is no frame: the stream is empty\nhint: " in done.stderr


@pytest.mark.parametrize("data", [b"", b"\0\0\r\n"])
def test_a_clip_without_a_frame(folder: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty.mjpeg").write_bytes(data)
    assert run("-i", "empty.mjpeg", "-o", "out.mjpeg") == 65
    assert "error: empty.mjpeg: there is no frame: the stream is empty" in capsys.readouterr().err
    assert not Path("out.mjpeg").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-i", "a.mp4", "b.mp4"], "2 inputs: a video is one file, camera, address or folder"),
        (["-i", "clip.mjpeg", "--raw", "24x40"], "raw frames come from the standard input alone"),
        (["--raw", "24x40"], "0 inputs: a video is one"),
        (["--view", "8000"], "0 inputs: a video is one"),
        (["-i", "none.mp4"], "there is no video 'none.mp4'"),
        (["-i", "rtsp2://a:b@c/d"], "chai reads no video from rtsp2://"),
        (["-i", "clip.mjpeg", "-o", "out.npz"], "expected .mp4, .mjpeg, .mjpg or a folder for a video"),
        (["-i", ".", "-o", ".", "--live"], "-o . would write into the folder that is read"),
        (["-i", "clip.mjpeg", "--draw", "out.png"], "--draw does nothing for a video"),
        (["-i", "clip.mjpeg", "--batch", "2"], "--batch does nothing for a video"),
        (["-i", "clip.mjpeg", "--perf"], "--perf does nothing for a video"),
        (["-i", "clip.mjpeg", "--view", "x"], "--view x: expected PORT or HOST:PORT"),
        (["-i", "clip.mjpeg", "--device", "float", "--bits", "6"], "--bits does nothing on device float"),
        (["-i", "clip.mjpeg", "--device", "float", "--overlay", "pynq-z2"], "--overlay does nothing on device float"),
    ],
)
def test_refusals(folder: Path, args: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*args) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    assert printed.out == ""


def test_options_of_formats_and_boxes_where_there_are_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["-i", "clip.mjpeg", "-q"]
    assert main(["run", "digits", *args, "--threshold", "0.5"]) == 2
    assert "--threshold does nothing for digits: none of its outputs has boxes" in capsys.readouterr().err
    pictures = np.random.default_rng(3).random((4, 1, 8, 8), np.float32)
    quantize(*locate("digits", None), [pictures], folder / "q.prototxt", effort="fast")
    for option in (["--bits", "6"], ["--calibration", "."]):
        assert main(["run", "q.prototxt", *args, *option]) == 2
        assert f"{option[0]} does nothing for q.prototxt, which brings its formats" in capsys.readouterr().err


# -- processes


@contextmanager
def started(*args: str, limit: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """``chai run`` under way, whose frames come from the test."""
    command = [sys.executable, "-m", "chai", "run", NETWORK, "-i", "-", *args]

    def before() -> None:
        ctrl_c_works()
        if limit:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=before, env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def feed(process: subprocess.Popen[bytes], count: int) -> None:
    assert process.stdin is not None
    for frame, _ in clip(count):
        process.stdin.write(jpeg(frame))
    process.stdin.flush()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("out", ["out.mjpeg", "out.mp4"])
def test_ctrl_c_leaves_a_file_that_plays(folder: Path, out: str, number: signal.Signals) -> None:
    """While it waits for the next frame of its standard input."""
    if out == "out.mp4":
        pyav()
    with started("-o", out) as process:
        feed(process, 20)
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"    19 "):
            pass
        os.killpg(process.pid, number)
        _, words = process.communicate(timeout=HANG)
        assert process.returncode == 128 + number, words
        last = ["interrupted"] if number == signal.SIGINT else []
        assert words.decode().splitlines()[-1 - len(last) :] == [f"wrote {out} (20 frames)", *last]
        assert of_session(process.pid) == []
    assert len(list(source(out).frames(Stop()))) == 20
    assert [path.name for path in folder.glob("out*")] == [out]


def test_a_full_disk_ends_it(folder: Path) -> None:
    """What had room plays; exit code 74, and the file's name in the message."""
    with started("-o", "out.mjpeg", limit=20_000) as process:
        _, words = process.communicate(b"".join(jpeg(frame) for frame, _ in clip(400)), timeout=HANG)
        assert process.returncode == 74, words
        assert words.decode().splitlines()[-1] == "error: out.mjpeg: File too large"
    frames = list(source("out.mjpeg").frames(Stop()))
    assert 3 < len(frames) < 400


def test_view(folder: Path) -> None:
    """The printed link shows the frames while they come; nothing is stored."""
    files = {*folder.iterdir()}
    with started("--view", "0", "--json") as process:
        assert process.stderr is not None
        line = next(line for line in process.stderr if line.startswith(b"view: "))
        link = line.decode().split()[1]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", link)
        with urlopen(link) as page:
            assert b"digits-detector: stdin" in page.read()
        with urlopen(f"{link}stream") as stream:
            feed(process, 10)
            assert stream.readline() == b"--frame\r\n"
            assert stream.readline() == b"Content-Type: image/jpeg\r\n"
            size = int(stream.readline().split()[1])
            stream.readline()
            image = Image.open(BytesIO(stream.read(size)))
            pixels = np.asarray(image).astype(int)
            colours = {class_colour(digit.label + 1) for _, truth in clip(10) for digit in truth}  # of frames and names
            assert any((np.abs(pixels[:HEIGHT, :WIDTH] - colour).max(2) < 60).any() for colour in colours)
            assert image.height > HEIGHT  # rate and times below it
        out, _ = process.communicate(timeout=HANG)
        assert json.loads(out)["shown"] == 10
        assert link.split("/")[3] not in out.decode()
        assert of_session(process.pid) == []
    assert {*folder.iterdir()} == files


def test_a_view_for_others_is_warned_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-i", "clip.mjpeg", "--view", "0.0.0.0:0") == 0
    words = capsys.readouterr().err
    assert "warning: anyone who has the link sees the frames, and they are not encrypted, on 0.0.0.0:" in words


def test_no_password_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyav()
    for more in ([], ["--json"], ["-v"]):
        assert run("-i", "rtsp://user:pa55@127.0.0.1:1/live?key=pa55", *more) == 65
        printed = capsys.readouterr()
        assert "pa55" not in printed.out + printed.err
        assert "rtsp://127.0.0.1:1/live: after 0 frames: Connection refused" in printed.err
