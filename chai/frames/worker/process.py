"""Read a video in a process of its own, which may die, hang or be wrong without harm to this one."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from ...blob import Array
from ...errors import ChaiError, ParseError, UsageError
from ...limits import limits
from ...text import number_of
from ...util.files import opened_file
from ...util.interpreter import THREAD_LIMITS, command, ending
from ...util.lazy_numpy import np
from ..threads import Stop, VideoStopped
from . import EXTRA, HEADER

LONGEST = 1 << 16  # bytes of the answer at the end
ONE_THREAD = dict.fromkeys(THREAD_LIMITS, "1")  # whose stacks count as memory


@dataclass(frozen=True)
class VideoJob:
    """A video to read: ``kind`` is file, camera or stream; ``container`` libav's name of a file's format."""

    kind: str
    place: str
    container: str = ""


def decoded_frames(job: VideoJob, name: str, stop: Stop) -> Iterator[tuple[float, Array]]:
    """Yield seconds and pixels, uint8 (H, W, 3), of each frame. Raises ParseError and UsageError after the last good one."""
    with suppress(VideoStopped), opened_file(job.place) if job.kind == "file" else nullcontext() as file:
        if file is not None and not os.fstat(file.fileno()).st_size:
            raise ParseError("there is no frame: the file is empty", path=name)
        yield from _VideoProcess(job, name, stop, None if file is None else file.fileno())


class _VideoProcess:
    """The process, and the frames that it sends."""

    def __init__(self, job: VideoJob, name: str, stop: Stop, file: int | None) -> None:
        self.name, self.stop, self.count = name, stop, 0
        self.child = subprocess.Popen(
            command("chai.frames.worker.main"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # libav's messages may contain addresses with passwords
            pass_fds=() if file is None else (file,),
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C must reach only this process, which then ends that one
        )
        stop.when(self.child.kill)
        bounds = limits()
        asked = {**asdict(job), "file": file, "bytes": bounds.video_bytes}
        asked |= {"pixels": bounds.frame_pixels, "seconds": bounds.frame_seconds}
        assert self.child.stdin is not None
        with suppress(BrokenPipeError), self.child.stdin as pipe:  # not an argument: others could read a password there
            pipe.write(json.dumps(asked).encode() + b"\n")

    def __iter__(self) -> Iterator[tuple[float, Array]]:
        try:
            while True:
                width, height, seconds = HEADER.unpack(self._exactly(HEADER.size))
                if not width:
                    self._end(json.loads(bytes(self._exactly(min(height, LONGEST)))))
                    return
                if width * height > limits().frame_pixels:
                    raise self._wrong(limits().exceeded("frame_pixels", width * height))
                yield seconds, np.frombuffer(self._exactly(width * height * 3), np.uint8).reshape(height, width, 3)
                self.count += 1
        finally:
            self.child.kill()
            self.child.wait()
            assert self.child.stdout is not None
            self.child.stdout.close()

    def _exactly(self, count: int) -> bytearray:
        """Return so many bytes. Raises ParseError if the process ends before, or sends none for too long."""
        assert self.child.stdout is not None
        file, data, done = self.child.stdout.fileno(), bytearray(count), 0
        view = memoryview(data)
        ready = select.poll()  # select takes no descriptor above 1,023
        ready.register(file, select.POLLIN)
        end = monotonic() + limits().frame_seconds
        while done < count:
            if not ready.poll(1000 * max(0.0, end - monotonic())):
                raise self._wrong(f"there was no frame for {limits().frame_seconds} s, the limit frame_seconds")
            size = os.readv(file, [view[done:]])
            if self.stop.stopped:
                raise VideoStopped
            if not size:
                raise self._wrong(f"the process that reads it ended {ending(self.child.wait())}")
            done += size
        return data

    def _end(self, answer: dict[str, Any]) -> None:
        if answer.get("hint"):
            raise UsageError(f"{self.name}: {answer['error']}", hint=f"{EXTRA}, or frames in a folder, or MJPEG")
        if "error" in answer:
            raise self._wrong(str(answer["error"])[:500])

    def _wrong(self, words: str) -> ChaiError:
        return ParseError(f"after {number_of(self.count, 'frame')}: {words}", path=self.name)
