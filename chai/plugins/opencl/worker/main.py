"""The process that runs kernels: it reads requests from a socket, one JSON object per line, and answers each."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
from collections.abc import Iterator
from mmap import mmap
from typing import Any

from .engine import EngineError, KernelRunner


def main() -> None:
    """Serve the socket whose number is the last argument, until its other end is closed."""
    channel = socket.socket(fileno=int(sys.argv[-1]))
    threading.Thread(target=_end_with, args=(channel,), daemon=True).start()
    engine: KernelRunner | None = None
    for request, files in _requests(channel):
        answer: dict[str, Any] = {}
        try:
            engine = engine or KernelRunner(own_process=True)
            for number in request.get("drop", ()):
                engine.programs.pop(number, None)
            if "build" in request:
                spec = request["build"]
                engine.build(request["program"], spec, mmap(files[0], spec["bytes"]))
            if request.get("run"):
                engine.run(request["program"])
        except EngineError as error:
            answer = {"error": str(error), "stage": error.stage, "log": error.log}
        except Exception as error:  # the library's, or memory
            answer = {"error": f"{type(error).__name__}: {error}", "stage": 0, "log": ""}
        finally:
            for file in files:
                os.close(file)
        channel.sendall(json.dumps(answer).encode() + b"\n")


def _requests(channel: socket.socket) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Yield each request, with the file descriptors that came along."""
    data = b""
    files: list[int] = []
    while True:
        received, more, _, _ = socket.recv_fds(channel, 1 << 16, 1)
        files += more
        if not received:
            return
        data += received
        if data.endswith(b"\n"):  # a request is sent only after the answer to the one before
            yield json.loads(data), files
            data, files = b"", []


def _end_with(channel: socket.socket) -> None:
    """End this process, even inside a kernel, when the other end of the channel is closed."""
    closed = select.poll()
    closed.register(channel, 0)  # a hang-up is reported without being asked for
    closed.poll()
    os._exit(0)
