"""Workers of a dask scheduler, on other machines or boards.

Only this file uses dask. Messages have the name of one function of chai, a Job and file names. Dask retries a batch
whose worker died, but waits minutes for a worker that hangs (``worker-ttl``): batches of such workers are dispatched
again from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Any
from uuid import uuid4

from ...errors import ChaiError, DeviceError, UsageError
from ...util.log import logger
from .dispatch import Part
from .job import Answer, Job, answer, release

log = logger("chai.evaluate")
LOGGERS = ("distributed", "distributed.client")  # of dask, with handlers of their own
AHEAD = 2  # batches per worker that are dispatched: one is transferred while another runs
PATIENCE = 30.0  # seconds; dask's workers send a heartbeat every half second, in large clusters every few seconds
LOOK = 2.0  # seconds between two checks for live workers
CONNECT = 10.0  # seconds to reach the scheduler
PARTING = 3.0  # seconds to disconnect from it


def _as_info(record: logging.LogRecord) -> bool:
    """Log what dask says, with its tracebacks, and return False: an error of chai says what happened."""
    log.info("dask: %s", record.getMessage(), exc_info=record.exc_info)
    return False


async def let_go() -> None:
    """Close the networks of a worker after its last batch; it keeps sending heartbeats meanwhile."""
    await asyncio.to_thread(release)


class Cluster:
    """A Crew of the current workers of a scheduler; workers may join and leave.

    A worker whose last heartbeat is PATIENCE seconds older than that of the others is considered frozen.
    ``timeout``   seconds without any answer before DeviceError is raised. DeviceError too if the scheduler cannot be
                  reached; UsageError without dask
    """

    def __init__(self, address: str, job: Job, timeout: float = 600.0) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise UsageError("--scheduler needs dask.distributed", hint='pip install "chai-fpga[cluster]"') from None
        self.address, self.job = address, job.to_json()
        self.timeout = timeout
        self.out: dict[Any, Part] = {}  # by future
        self._done: SimpleQueue[Any] = SimpleQueue()
        self._moved: set[Part] = set()
        self._heard = monotonic()
        self._seen: tuple[list[str], set[str]] = [], set()  # live workers, keys of batches at other workers
        self._over = Event()
        self._quiet = ExitStack()
        for handler in {h for name in LOGGERS for h in logging.getLogger(name).handlers}:
            handler.addFilter(_as_info)
            self._quiet.callback(handler.removeFilter, _as_info)
        try:
            self.client = Client(address, timeout=CONNECT, set_as_default=False)
            self._look()
        except (OSError, ValueError) as error:
            self._quiet.close()
            message = f"no scheduler answers at {address}: {error}"
            raise DeviceError(message, hint="dask scheduler starts one") from error
        Thread(target=self._watch, daemon=True).start()

    def room(self) -> int:
        """Return the number of batches that can be dispatched: AHEAD per worker; 1 if there is no worker yet."""
        return max(AHEAD * len(self._seen[0]), 1) - len(set(self.out.values()))

    def give(self, part: Part) -> None:
        """Dispatch a batch to any worker."""
        self._moved.discard(part)
        self._submit(part)

    def wait(self) -> list[tuple[Part, Answer]]:
        """Return the answers that have arrived. Raises DeviceError after ``timeout``."""
        ready: list[Any] = []
        with suppress(Empty):
            ready.append(self._done.get(timeout=1))
            while True:
                ready.append(self._done.get_nowait())
        self._rescue()
        results = []
        for future in ready:
            if future in self.out and future.status in ("pending", "lost"):
                future.add_done_callback(self._done.put)  # its worker died with the result: dask computes it again
                continue
            part = self.out.pop(future, None)
            if part is None:  # a copy of this batch was faster
                continue
            try:
                with self._reaching():
                    results.append((part, self._result(future)))
            except (TimeoutError, asyncio.TimeoutError):  # two classes before Python 3.11
                log.warning("image %d: its worker has the result and gave no sign for %g s", part[0][0], PATIENCE)
                self._submit(part)
                continue
            for copy in [f for f, p in self.out.items() if p == part]:
                del self.out[copy]
                copy.cancel(force=True)
        now = monotonic()
        if results:
            self._heard = now
        elif now - self._heard > self.timeout:
            raise DeviceError(
                f"nothing has come back from {self.address} for {self.timeout:g} s: "
                f"{len(self._seen[0])} workers, {len(set(self.out.values()))} batches under way",
                hint="dask's dashboard shows what they do; a --journal keeps what is done",
            )
        return results

    def close(self) -> None:
        """Cancel dispatched batches and close the networks of all workers that respond."""
        self._over.set()
        farewell = Thread(target=self._take_back, daemon=True)  # a hanging worker would block it for ever
        farewell.start()
        farewell.join(PARTING)
        self.client.close(timeout=PARTING)
        self._quiet.close()

    def _take_back(self) -> None:
        try:
            self.client.cancel(list(self.out), force=True)
            self.client.run(let_go, wait=False, on_error="ignore")
        except Exception as error:
            log.info("scheduler %s: %s", self.address, error)

    def _submit(self, part: Part, **where: Any) -> None:
        with self._reaching():
            key = f"chai-evaluate-{uuid4().hex}"
            future = self.client.submit(answer, self.job, part, key=key, pure=False, **where)
        self.out[future] = part
        future.add_done_callback(self._done.put)

    def _result(self, future: Any) -> Answer:
        if future.status == "finished":
            result: Answer = future.result(timeout=PATIENCE)  # dask waits for a hanging worker as long as worker-ttl
            return result
        if future.status != "error":
            raise self._gone()
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            return {"lost": "it killed every worker that tried it"}
        hint = f"pip install chai-fpga=={self.job['version']} on their machines, and restart them"
        raise UsageError(f"the workers of {self.address} cannot run chai: {type(error).__name__}: {error}", hint=hint)

    def _watch(self) -> None:
        """Poll for live workers; in a thread, since a scheduler that hangs does not answer."""
        while not self._over.wait(LOOK):
            with suppress(Exception):  # the futures fail if the scheduler is gone
                self._look()

    def _look(self) -> None:
        seen = self.client.scheduler_info(n_workers=-1)["workers"]
        latest = max((w["last_seen"] for w in seen.values()), default=0)
        alive = [name for name, w in seen.items() if latest - w["last_seen"] <= PATIENCE]
        processing = self.client.processing() if len(alive) < len(seen) else {}
        stuck = {key for name in seen.keys() - set(alive) for key in processing.get(name, ())}
        self._seen = alive, stuck

    def _rescue(self) -> None:
        """Dispatch batches of hanging workers to the others, once."""
        alive, stuck = self._seen
        for future, part in list(self.out.items()):
            if future.key in stuck and alive and part not in self._moved:
                log.warning("image %d: its worker gave no sign for %g s; others run the batch", part[0][0], PATIENCE)
                self._moved.add(part)
                self._submit(part, workers=alive)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raise DeviceError for an error of dask that means that the scheduler is gone."""
        try:
            yield
        except (ChaiError, TimeoutError, asyncio.TimeoutError):
            raise
        except Exception as error:
            if self.client.status == "running" and not isinstance(error, OSError):
                raise
            raise self._gone() from error

    def _gone(self) -> DeviceError:
        return DeviceError(f"the scheduler {self.address} is gone", hint="a --journal keeps what is done")
