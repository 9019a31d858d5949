"""Workers on this machine: processes that read batches from pipes.

No pool of the standard library survives the death of one of its processes, or detects that one hangs.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import IO

from ...util.interpreter import THREAD_LIMITS, command, ending
from ...util.log import logger
from .dispatch import Part
from .job import Answer, Job

log = logger("chai.evaluate")
PATIENCE = 30.0  # seconds; a worker sends a heartbeat every second
# with one thread, sums do not depend on the number of workers
ONE_THREAD = dict.fromkeys((*THREAD_LIMITS, "NUMBA_NUM_THREADS"), "1")


@dataclass
class _Worker:
    process: subprocess.Popen[bytes]
    heard: float
    unsent: SimpleQueue[bytes] = field(default_factory=SimpleQueue)  # lines; an empty one is the last
    received: bytes = b""
    part: Part | None = None
    since: float = 0.0

    @property
    def stdout(self) -> IO[bytes]:
        """Return the pipe of its answers."""
        assert self.process.stdout is not None
        return self.process.stdout

    def send(self) -> None:
        """Write what is unsent until the worker ends; in a thread, as a pipe takes 64 KiB before the worker reads."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as pipe:  # its end is detected when its answers are read
            for line in iter(self.unsent.get, b""):
                pipe.write(line)
                pipe.flush()


class Processes:
    """A Crew of ``jobs`` processes.

    A process without a heartbeat for PATIENCE seconds is considered frozen; ``timeout``: time limit per batch in seconds.
    """

    def __init__(self, job: Job, jobs: int, timeout: float = 600.0) -> None:
        self.job = json.dumps(job.to_json()).encode() + b"\n"
        self.jobs, self.timeout = jobs, timeout
        self.workers: list[_Worker] = []
        self.events = selectors.DefaultSelector()

    def room(self) -> int:
        """Return the number of idle workers and of workers that can still be started."""
        return self.jobs - sum(worker.part is not None for worker in self.workers)

    def give(self, part: Part) -> None:
        """Dispatch a batch to an idle worker, or to a new one."""
        worker = next((w for w in self.workers if w.part is None), None) or self._start()
        worker.part, worker.since = part, monotonic()
        worker.unsent.put(json.dumps(part).encode() + b"\n")

    def wait(self) -> list[tuple[Part, Answer]]:
        """Return the answers that have arrived, and lost batches: of workers that exited or were killed."""
        answers: list[tuple[Part, Answer]] = []
        for key, _ in self.events.select(0.5):
            answers += self._receive(key.data)
        now = monotonic()
        for worker in list(self.workers):
            if now - worker.heard > PATIENCE:
                answers += self._lose(worker, f"its worker gave no sign for {PATIENCE:g} s")
            elif worker.part is not None and now - worker.since > self.timeout:
                answers += self._lose(worker, f"it takes longer than {self.timeout:g} s")
        return answers

    def close(self) -> None:
        """Kill all workers."""
        for worker in list(self.workers):
            self._end(worker)
        self.events.close()

    def _start(self) -> _Worker:
        process = subprocess.Popen(
            command("chai.evaluate.workers.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,  # Ctrl-C must reach only the main process, which then kills this one
        )
        worker = _Worker(process, monotonic())
        worker.unsent.put(self.job)
        Thread(target=worker.send, daemon=True).start()
        self.events.register(worker.stdout, selectors.EVENT_READ, worker)
        self.workers.append(worker)
        return worker

    def _receive(self, worker: _Worker) -> list[tuple[Part, Answer]]:
        data = os.read(worker.stdout.fileno(), 1 << 16)
        if not data:
            return self._lose(worker, "")
        worker.heard = monotonic()
        *lines, worker.received = (worker.received + data).split(b"\n")
        answers = []
        for line in filter(None, lines):
            assert worker.part is not None
            answers.append((worker.part, json.loads(line)))
            worker.part = None
        return answers

    def _lose(self, worker: _Worker, why: str) -> list[tuple[Part, Answer]]:
        self._end(worker)
        if worker.part is None:
            return []
        why = why or f"its worker ended {ending(worker.process.returncode)}"
        log.warning("image %d: %s; the batch is run again", worker.part[0][0], why)
        return [(worker.part, {"lost": why})]

    def _end(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.process.kill()
        worker.process.wait()
        worker.unsent.put(b"")
        self.events.unregister(worker.stdout)
        worker.stdout.close()
