"""Run iterators in threads of their own, with bounded queues between them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 10.0  # seconds that the end of a video waits for its threads; a step of a network may take some


class Stop:
    """Ends the threads of a video, from any thread and at any moment."""

    def __init__(self) -> None:
        self.stopped = False
        self._calls: list[Callable[[], object]] = []
        self._threads: list[threading.Thread] = []

    def when(self, call: Callable[[], object]) -> None:
        """Have ``call`` called when the video is stopped; now, if it is."""
        self._calls.append(call)
        if self.stopped:
            call()

    def start(self, run: Callable[[], object], name: str) -> None:
        thread = threading.Thread(target=run, name=f"chai-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def __call__(self) -> None:
        self.stopped = True
        for call in list(self._calls):
            call()

    def join(self, seconds: float = PATIENCE) -> None:
        """Wait for the threads to end, so many seconds at most."""
        end = monotonic() + seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - monotonic()))


class VideoStopped(Exception):
    """The video was stopped while its source waited for bytes."""


class Beside(Iterator[T]):
    """An iterator whose items are made in a thread of its own, at most ``depth`` before they are asked for.

    The error that ends it comes in its place, as what ``next`` raises at its end. After a stop it ends.
    """

    def __init__(self, items: Iterator[T], depth: int, name: str, stop: Stop) -> None:
        self._items, self._stop = items, stop
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._lock = threading.Lock()  # of what waits for an item, and of putting one
        self._waiting: Callable[[], object] | None = None
        stop.when(self._wake)
        stop.start(self._run, name)

    def __next__(self) -> T:
        item: Any = self._queue.get()
        if isinstance(item, BaseException):
            self._queue.put(item)
            raise item
        self._room.release()
        return item  # type: ignore[no-any-return]

    def _run(self) -> None:
        end: BaseException = StopIteration()
        try:
            while self._room.acquire() and not self._stop.stopped:
                self._put(next(self._items))
        except StopIteration:
            pass  # whose traceback would hold this frame
        except BaseException as error:
            end = error
        finally:
            close(self._items)
            self._put(end)

    def ready(self, wake: Callable[[], object]) -> bool:
        """Return whether there is an item, or the end; if not, call ``wake`` when there is."""
        with self._lock:
            ready = not self._queue.empty()
            self._waiting = None if ready else wake
        return ready

    def _put(self, item: T | BaseException) -> None:
        with self._lock:
            self._queue.put(item)
            wake, self._waiting = self._waiting, None
        if wake is not None:
            wake()

    def _wake(self) -> None:
        self._put(StopIteration())
        self._room.release()


class Newest(Beside[T]):
    """An iterator over the newest item: a thread of its own takes all that come, and calls ``drop`` for those not asked for."""

    def __init__(self, items: Iterator[T], stop: Stop, drop: Callable[[], object]) -> None:
        self._drop = drop
        super().__init__(items, 1, "newest", stop)

    def _put(self, item: T | BaseException) -> None:
        if not isinstance(item, BaseException):
            self._room.release()  # for the next, which comes in place of this one if that waits
            with suppress(Empty):
                if isinstance(waiting := self._queue.get_nowait(), BaseException):
                    item = waiting
                else:
                    self._drop()
        super()._put(item)


def close(items: Iterator[Any]) -> None:
    if (call := getattr(items, "close", None)) is not None:
        call()
