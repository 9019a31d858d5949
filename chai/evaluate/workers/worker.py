"""Worker process that runs batches for its parent: JSON lines in, JSON lines out.

An empty line every second is the heartbeat. The process exits when its parent is gone, even in the middle of a batch.
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
    """Read a Job from the first line and a batch from each further line; write an Answer per batch."""
    out = os.dup(1)
    os.dup2(2, 1)  # output of a custom layer must not mix with answers
    lock = Lock()

    def say(text: str) -> None:
        data = (text + "\n").encode()
        try:
            with lock:
                while data:
                    data = data[os.write(out, data) :]
        except OSError:  # the parent is gone
            os._exit(1)

    Thread(target=_beat, args=(say,), daemon=True).start()
    from .job import answer

    logging.getLogger("chai").setLevel(logging.ERROR)  # the parent process has logged it
    lines = iter(sys.stdin.buffer.readline, b"")
    job: dict[str, Any] = json.loads(next(lines))
    for line in lines:
        say(json.dumps(answer(job, json.loads(line))))


def _beat(say: Any) -> None:
    while True:
        say("")
        sleep(BEAT)
