"""Decode a video with libav and write its frames to the standard output."""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from . import EXTRA, HEADER

CODECS = {
    "av1", "h264", "hevc", "libdav1d", "libvpx", "libvpx-vp9", "mjpeg", "mpeg1video", "mpeg2video", "mpeg4", "rawvideo",
    "vp8", "vp9",
}  # fmt: skip
PROTOCOLS = {"file": "", "camera": "", "stream": "rtsp,rtsps,rtp,srtp,udp,tcp,tls"}
FORMATS = {"file": "mov,matroska,avi,mpegts", "camera": "v4l2,video4linux2", "stream": "rtsp,rtp,sdp"}
STREAM = {"rtsp_transport": "tcp", "allowed_media_types": "video"}
FILES = {"file": 0, "camera": 64, "stream": 64}  # descriptors; of a file all that is needed is open when reading begins


class Unreadable(Exception):
    """A video that is not read on; the message is the reason."""


def main() -> None:
    """Follow the job on the standard input."""
    out = os.dup(1)
    os.dup2(2, 1)
    job: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    answer: dict[str, Any] = {}
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (job["bytes"], job["bytes"]))
        for seconds, pixels in frames(job):
            height, width = pixels.shape[:2]
            _write(out, HEADER.pack(width, height, seconds))
            _write(out, memoryview(pixels).cast("B"))
    except Unreadable as error:
        answer = {"error": str(error)}
    except ModuleNotFoundError as error:
        answer = {"error": f"videos need PyAV ({error})", "hint": EXTRA}
    except MemoryError:
        answer = {"error": f"it needs more memory than the limit video_bytes={job['bytes']:,}"}
    except BrokenPipeError:
        return
    except Exception as error:  # libav's, whose own text may contain the address with its password
        answer = {"error": getattr(error, "strerror", None) or type(error).__name__}
    data = json.dumps(answer).encode()
    _write(out, HEADER.pack(0, len(data), 0.0))
    _write(out, data)


def _write(out: int, data: Any) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(out, view) :]


def frames(job: dict[str, Any]) -> Iterator[tuple[float, Any]]:
    """Yield seconds and pixels, uint8 (H, W, 3) in RGB, of each frame. Raises Unreadable, and what PyAV raises."""
    av = library()
    av.logging.set_level(av.logging.PANIC)
    with opened(job) as container:
        stream = next(iter(container.streams.video), None)
        if stream is None:
            raise Unreadable("there is no video in it")
        codec = stream.codec_context
        if codec is None or codec.codec.name not in CODECS:
            raise Unreadable(f"its codec is {'unknown' if codec is None else codec.codec.name}; expected a usual one")
        _check(codec.width, codec.height, job)
        codec.options = {"max_pixels": str(job["pixels"])}
        yield from _decoded(container, stream, job)


def _decoded(container: Any, stream: Any, job: dict[str, Any]) -> Iterator[tuple[float, Any]]:
    packets, rate = 0, float(stream.average_rate or stream.guessed_rate or 25)
    first, number = None, 0
    for packet in container.demux(stream):
        packets += packet.size > 0
        for frame in packet.decode():
            _check(frame.width, frame.height, job)
            seconds = number / rate if frame.time is None else frame.time
            first = seconds if first is None else first
            yield seconds - first, upright(frame.to_ndarray(format="rgb24"), getattr(frame, "rotation", 0))
            number += 1
    if job["kind"] == "file" and packets < stream.frames:
        raise Unreadable(f"it ends after {packets} of {stream.frames} frames")
    if not number:
        raise Unreadable("there is no frame in it")
    if job["kind"] != "file":
        raise Unreadable(f"the {job['kind']} has ended")


def _check(width: int, height: int, job: dict[str, Any]) -> None:
    if width * height > job["pixels"]:
        raise Unreadable(f"frames of {width}x{height}, more than the limit frame_pixels={job['pixels']:,}")


def library() -> Any:
    """Return PyAV, with all of the modules that it would load later, when no file can be opened any more."""
    import av

    for module in iter_modules(av.__path__, "av."):
        if module.ispkg:
            for inner in iter_modules(import_module(module.name).__path__, f"{module.name}."):
                import_module(inner.name)
        elif not module.name.endswith("__main__"):
            import_module(module.name)
    av.VideoFrame(16, 16, "yuv420p").to_ndarray(format="rgb24")
    return av


def upright(pixels: Any, degrees: int) -> Any:
    """Return a frame turned counterclockwise by degrees, as phones note that they were held."""
    import numpy as np

    return np.ascontiguousarray(np.rot90(pixels, degrees // 90 % 4))


def opened(job: dict[str, Any]) -> Any:
    """Open the file, camera or stream of a job: by a reader and protocols of a list, and no further file."""
    import av

    kind = job["kind"]
    options = {"protocol_whitelist": PROTOCOLS[kind], "format_whitelist": FORMATS[kind]}
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES[kind], FILES[kind]))
    with_timeout = partial(av.open, timeout=job["seconds"])
    if kind == "camera":
        return camera(with_timeout, job["place"], options)
    if kind == "stream":
        return with_timeout(job["place"], format="rtsp", options={**options, **STREAM})
    return with_timeout(os.fdopen(job["file"], "rb"), format=job["container"], options=options)


def camera(open: Callable[..., Any], place: str, options: dict[str, str]) -> Any:
    """Open a camera: its JPEGs, which a USB camera has at a higher rate, else what it has."""
    from av.error import FFmpegError

    try:
        return open(place, format="v4l2", options={**options, "input_format": "mjpeg"})
    except FFmpegError:
        return open(place, format="v4l2", options=options)
