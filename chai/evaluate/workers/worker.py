"""A process that runs batches for another: JSON lines in, JSON lines out.

An empty line every second says that it is alive. It ends when whoever reads those is gone, in the middle of a batch too.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from threading import Lock, Thread
from time import sleep
from typing import Any

BEAT = 1.0  # seconds


def main() -> None:
    """First line: a Job. Each other line: a batch. Each line of output: its Answer."""
    out = os.dup(1)
    os.dup2(2, 1)  # what a custom layer prints is no answer
    lock = Lock()

    def say(text: str) -> None:
        data = (text + "\n").encode()
        with lock:
            while data:
                data = data[os.write(out, data) :]

    Thread(target=_beat, args=(say,), daemon=True).start()
    from .job import answer

    logging.getLogger("chai").setLevel(logging.ERROR)  # the process that started this one has said it
    lines = iter(sys.stdin.buffer.readline, b"")
    job: dict[str, Any] = json.loads(next(lines))
    for line in lines:
        say(json.dumps(answer(job, json.loads(line))))


def _beat(say: Any) -> None:
    while True:
        try:
            say("")
        except OSError:
            os._exit(1)
        sleep(BEAT)
