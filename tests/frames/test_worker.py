"""Videos that libav reads, in a process of its own with bounds."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai.env import env
from chai.errors import ParseError, UsageError
from chai.frames import sources
from chai.frames.sources import RawFrame, shown, source
from chai.frames.threads import Stop
from chai.frames.worker import HEADER, main as worker, process
from chai.frames.worker.process import VideoJob
from chai.limits import limits
from tests.leftovers import Leftovers

from .common import HEIGHT, WIDTH, clip, many_open_files, pyav

pytestmark = pytest.mark.extras
FRAMES = 30


def write(
    path: Path, format: str | None = None, codec: str = "mpeg4", size: tuple[int, int] = (48, 32), **options: Any
) -> Path:
    """A video whose frames get brighter."""
    av = pyav()
    with av.open(str(path), "w", format=format, options=options) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for i in range(FRAMES):
            frame = av.VideoFrame.from_ndarray(np.full((size[1], size[0], 3), 8 * i, np.uint8), format="rgb24")
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def read(path: Path) -> list[RawFrame]:
    return list(source(path).frames(Stop()))


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".avi", ".ts"])
def test_containers(tmp_path: Path, suffix: str) -> None:
    frames = read(write(tmp_path / f"clip{suffix}", codec="mpeg2video" if suffix == ".ts" else "mpeg4"))
    levels = [float(np.asarray(frame.data).mean()) / 8 for frame in frames]
    np.testing.assert_allclose(levels, np.arange(FRAMES), atol=0.6)
    np.testing.assert_allclose([frame.seconds for frame in frames], np.arange(FRAMES) / 10, atol=2e-3)
    assert frames[0].picture()[1] == (48, 32)


def test_a_torn_file_gives_the_frames_before(tmp_path: Path) -> None:
    path = write(tmp_path / "clip.mp4", movflags="faststart")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    seen = 0
    with pytest.raises(ParseError, match=r"^clip\.mp4: after \d+ frames: ") as torn:
        for _ in source(path).frames(Stop()):
            seen += 1
    assert f"after {seen} frames" in torn.value.headline
    assert seen > 3


@pytest.mark.parametrize(
    ("suffix", "data"),
    [
        (".mp4", b""),
        (".mp4", bytes(100)),
        (".ts", b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1/a.ts\n"),
        (".mkv", b"ffconcat version 1.0\nfile b.mp4\n"),
    ],
)
def test_what_is_no_video(tmp_path: Path, data: bytes, suffix: str) -> None:
    """Playlists, which name other files, are not known in a file of any suffix."""
    pyav()
    (tmp_path / f"a{suffix}").write_bytes(data)
    with pytest.raises(ParseError, match=rf"^a\{suffix}: "):
        read(tmp_path / f"a{suffix}")


def test_the_process_can_open_nothing(tmp_path: Path) -> None:
    """Once it reads: neither a file nor a connection."""
    path = write(tmp_path / "clip.mp4")
    code = (
        "import json, os, socket, sys\n"
        "from chai.frames.worker import main\n"
        "frames = main.frames(json.loads(sys.argv[1]))\n"
        "print(next(frames)[1].shape)\n"
        "for what in (lambda: open('/etc/passwd'), socket.socket):\n"
        "    try: what()\n"
        "    except OSError as error: print(error.strerror)\n"
        "    else: print('opened')\n"
    )
    with open(path, "rb") as file:
        job = {
            "kind": "file",
            "container": "mov",
            "file": file.fileno(),
            "bytes": 1 << 32,
            "pixels": 1 << 24,
            "seconds": 30,
        }
        command = [sys.executable, "-c", code, json.dumps(job)]
        done = subprocess.run(command, pass_fds=[file.fileno()], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["(32, 48, 3)", "Too many open files", "Too many open files"], done.stderr


@pytest.mark.parametrize(("limit", "words"), [("frame_pixels=1000", "frame_pixels"), ("video_bytes=200000000", "")])
def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, words: str) -> None:
    path = write(tmp_path / "clip.mp4")
    limited(monkeypatch, limit)
    with pytest.raises((ParseError, UsageError)) as refusal:
        read(path)
    assert words in str(refusal.value)


def limited(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CHAI_LIMITS", text)
    env.cache_clear()
    limits.cache_clear()


def test_without_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install, and what works without."""
    (tmp_path / "av.py").write_text("raise ModuleNotFoundError(\"No module named 'av'\")")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a.mp4").write_bytes(b"1234")
    with pytest.raises(UsageError) as refusal:
        read(tmp_path / "a.mp4")
    assert refusal.value.message == "a.mp4: videos need PyAV (No module named 'av')"
    assert "pip install 'chai-fpga[video]'" in str(refusal.value.hint)


# A process that stands in for libav's: what it writes is decided here.


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(code: str) -> None:
        monkeypatch.setattr(process, "command", lambda module: [sys.executable, "-c", f"import os, sys\n{code}"])

    return use


FRAME = f"import struct\nframe = struct.pack('{HEADER.format}', 3, 2, 0.5) + bytes(range(18))\n"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            f"{FRAME}os.write(1, frame * 2); os.kill(os.getpid(), 11)",
            "after 2 frames: the process that reads it ended by SIGSEGV",
        ),
        (f"{FRAME}os.write(1, frame + frame[:20])", "after 1 frame: the process that reads it ended with exit code 0"),
        (
            f"import struct\nos.write(1, struct.pack('{HEADER.format}', 1 << 20, 1 << 20, 0))",
            "exceeds the limit frame_pixels",
        ),
    ],
)
def test_a_process_that_dies_or_lies(tmp_path: Path, child: Any, code: str, words: str) -> None:
    child(code)
    (tmp_path / "a.mp4").write_bytes(b"1234")
    with pytest.raises(ParseError) as error:
        read(tmp_path / "a.mp4")
    assert words in error.value.headline


def test_a_process_at_a_large_descriptor(tmp_path: Path, child: Any) -> None:
    child(f"{FRAME}os.write(1, frame * 3 + struct.pack('{HEADER.format}', 0, 2, 0) + b'{{}}')")
    (tmp_path / "a.mp4").write_bytes(b"1234")
    with many_open_files():
        frames = read(tmp_path / "a.mp4")
    np.testing.assert_array_equal([frame.data for frame in frames], [np.arange(18).reshape(2, 3, 3)] * 3)


def test_a_process_that_hangs(tmp_path: Path, child: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    child(f"{FRAME}os.write(1, frame)\nimport time; time.sleep(1800)")
    limited(monkeypatch, "frame_seconds=1")
    (tmp_path / "a.mp4").write_bytes(b"1234")
    seen = []
    before = Leftovers()
    with pytest.raises(ParseError, match="after 1 frame: there was no frame for 1 s, the limit frame_seconds"):
        for frame in source(tmp_path / "a.mp4").frames(Stop()):
            seen.append(frame)  # noqa: PERF402
    np.testing.assert_array_equal(seen[0].data, np.arange(18, dtype=np.uint8).reshape(2, 3, 3))
    assert seen[0].seconds == 0.5
    assert not before, before


def test_a_stop_ends_a_process_that_waits(tmp_path: Path, child: Any) -> None:
    child(f"{FRAME}os.write(1, frame)\nimport time; time.sleep(1800)")
    (tmp_path / "a.mp4").write_bytes(b"1234")
    stop = Stop()
    frames = source(tmp_path / "a.mp4").frames(stop)
    next(frames)
    threading.Timer(0.1, stop).start()
    assert list(frames) == []


# -- cameras, at the seam where libav opens one


CAMERA = """
import numpy as np
from chai.frames.worker import main
class Codec: name = "mjpeg"
class Context: codec, options, width, height = Codec, { }, 5, 4
class Image:
    width, height, rotation = 5, 4, 0
    def __init__(self, time): self.time = time
    def to_ndarray(self, format): return np.full((4, 5, 3), round(self.time * 10), np.uint8)
class Packet:
    size = 1
    def __init__(self, time): self.time = time
    def decode(self): return [Image(self.time)]
class Stream: codec_context, average_rate, guessed_rate, frames = Context, 30, 30, 0
class Camera:
    class streams: video = [Stream]
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def demux(self, stream):
        for i in range(3): yield Packet(i / 10 + 7)
        END
def opened(job):
    assert (job["kind"], job["place"]) == ("camera", "/dev/video7"), job
    return Camera()
main.opened, main.library = opened, lambda: type("av", (), {"logging": type("l", (), {"set_level": print, "PANIC": 0})})
main.main()
"""


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("raise OSError(19, 'No such device')", "camera:7: after 3 frames: No such device"),
        ("return", "camera:7: after 3 frames: the camera has ended"),
    ],
)
def test_a_camera_that_disappears(child: Any, monkeypatch: pytest.MonkeyPatch, end: str, words: str) -> None:
    child(CAMERA.replace("END", end))
    monkeypatch.setattr(sources.Path, "exists", lambda path: str(path) == "/dev/video7")
    seen = []
    with pytest.raises(ParseError) as gone:
        for frame in source("camera:7").frames(Stop()):
            seen.append(frame)  # noqa: PERF402
    assert gone.value.headline == words
    assert [int(frame.data[0, 0, 0]) for frame in seen] == [70, 71, 72]  # type: ignore[call-overload, index]
    np.testing.assert_allclose([frame.seconds for frame in seen], [0, 0.1, 0.2], atol=1e-9)


def test_a_camera_without_jpegs() -> None:
    """It is asked for JPEGs first, and then for what it has."""
    asked = []

    def opened(place: str, format: str, options: dict[str, str]) -> str:
        asked.append((place, format, options))
        if "input_format" in options:
            raise av.error.InvalidDataError(22, "Invalid argument")
        return "camera"

    av = pyav()
    assert worker.camera(opened, "/dev/video3", {"a": "b"}) == "camera"
    assert asked == [
        ("/dev/video3", "v4l2", {"a": "b", "input_format": "mjpeg"}),
        ("/dev/video3", "v4l2", {"a": "b"}),
    ]


def test_names_of_cameras(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[VideoJob] = []
    monkeypatch.setattr(sources.Path, "exists", lambda path: str(path) == "/dev/video2")
    monkeypatch.setattr(sources, "decoded_frames", lambda job, *_: jobs.append(job) or iter(()))
    for name in ("camera:2", "/dev/video2"):
        camera = source(name)
        assert camera.live
        assert list(camera.frames(Stop())) == []
    assert jobs == [VideoJob("camera", "/dev/video2")] * 2


# -- streams


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("rtsp://user:pa55@10.0.0.7:554/live?token=pa55#pa55", "rtsp://10.0.0.7:554/live"),
        ("RTSP://user@[::1]:8554/a/b", "rtsp://[::1]:8554/a/b"),
        ("rtsps://:pa55@host", "rtsps://host"),
    ],
)
def test_no_secret_of_an_address_is_shown(address: str, name: str) -> None:
    stream = source(address)
    assert stream.name == name == shown(address)
    assert stream.live
    assert "pa55" not in stream.name


@pytest.fixture
def refusing() -> Iterator[int]:
    """The port of a server that answers every request with 404."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            with peer:
                asked = peer.recv(4096)
                number = next((line for line in asked.split(b"\r\n") if line.startswith(b"CSeq")), b"CSeq: 1")
                peer.sendall(b"RTSP/1.0 404 Not Found\r\n" + number + b"\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def test_no_secret_is_in_an_error_or_in_the_list_of_processes(refusing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pyav()
    started: list[Any] = []
    popen = subprocess.Popen

    def noted(command: Any, **options: Any) -> Any:
        started.append((command, options["env"]))
        return popen(command, **options)

    monkeypatch.setattr(process.subprocess, "Popen", noted)
    with pytest.raises(ParseError) as error:
        list(source(f"rtsp://user:pa55@127.0.0.1:{refusing}/live?key=pa55").frames(Stop()))
    assert "pa55" not in f"{error.value} {error.value.__cause__} {error.value.__context__}"
    assert error.value.headline.startswith(f"rtsp://127.0.0.1:{refusing}/live: after 0 frames: ")
    assert "pa55" not in str(started)


SERVER = """
import gi, sys
gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gst, GstRtspServer, GLib
Gst.init(None)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service("0")
factory = GstRtspServer.RTSPMediaFactory()
size = "video/x-raw,format=I420,width=64,height=48,framerate=10/1"  # rtpjpegpay takes no 4:4:4
factory.set_launch(f"( videotestsrc pattern=red is-live=true ! {size} ! jpegenc ! rtpjpegpay name=pay0 )")
server.get_mount_points().add_factory("/live", factory)
if not server.attach(None): sys.exit(3)
print(server.get_bound_port(), flush=True)
GLib.MainLoop().run()
"""
SYSTEM = "/usr/bin/python3"


def has_gstreamer() -> bool:
    """Whether Debian's python3 can serve RTSP, with what the server's pipeline needs."""
    code = (
        "import gi; gi.require_version('Gst', '1.0'); gi.require_version('GstRtspServer', '1.0')\n"
        "from gi.repository import Gst, GstRtspServer\n"
        "Gst.init(None); raise SystemExit(not all(map(Gst.ElementFactory.find, ('videotestsrc', 'jpegenc', 'rtpjpegpay'))))"
    )
    try:
        return subprocess.run([SYSTEM, "-c", code], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def test_a_stream_of_a_server() -> None:
    """RTSP over TCP on loopback: red frames, until the server goes, which is an error with their number."""
    pyav()
    if not has_gstreamer():
        packages = "gir1.2-gst-rtsp-server-1.0 python3-gi gstreamer1.0-plugins-base gstreamer1.0-plugins-good"
        pytest.skip(f"no RTSP server is installed: apt-get install {packages}")
    with subprocess.Popen([SYSTEM, "-c", SERVER], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            stop = Stop()
            frames = source(f"rtsp://user:pa55@127.0.0.1:{port}/live").frames(stop)
            seen = [next(frames) for _ in range(5)]
            server.kill()
            with pytest.raises(ParseError, match=rf"^rtsp://127\.0\.0\.1:{port}/live: after \d+ frames: "):
                list(frames)
        finally:
            server.kill()
    red = (238, 14, 14)  # of Y, Cb, Cr 81, 90, 240 in a JPEG: what the server makes of pure red
    for frame in seen:
        assert np.abs(np.asarray(frame.data).reshape(-1, 3).astype(int) - red).max() < 4
        assert frame.picture()[1] == (64, 48)
    assert seen[0].seconds == 0 < seen[4].seconds


def test_the_worker_is_bounded_before_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are set before PyAV is loaded."""
    calls: list[Any] = []
    stdin = type("", (), {"buffer": BytesIO(b'{"bytes": 77}\n')})
    monkeypatch.setattr(worker.sys, "stdin", stdin)
    monkeypatch.setattr(resource, "setrlimit", lambda kind, pair: calls.append((kind, pair)))
    monkeypatch.setattr(worker, "frames", lambda job: iter(calls.append("frames") or ()))
    monkeypatch.setattr(worker.os, "dup", lambda number: os.open(os.devnull, os.O_WRONLY))
    monkeypatch.setattr(worker.os, "dup2", lambda *numbers: None)
    worker.main()
    assert calls == [(resource.RLIMIT_CORE, (0, 0)), (resource.RLIMIT_AS, (77, 77)), "frames"]


def test_a_clip_of_the_detector(tmp_path: Path) -> None:
    """Frames through H.264 or MPEG-4 and back look as they did."""
    av = pyav()
    path = tmp_path / "clip.mp4"
    frames = [frame for frame, _ in clip(6)]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt, stream.bit_rate = WIDTH, HEIGHT, "yuv420p", 8_000_000
        for array in frames:
            for packet in stream.encode(av.VideoFrame.from_ndarray(array, format="rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    for raw, array in zip(read(path), frames, strict=True):
        assert np.abs(np.asarray(raw.data).astype(int) - array).mean() < 30
