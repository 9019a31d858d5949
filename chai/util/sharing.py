"""Share an object among threads: locks that track their holder, lifetimes that wait for the last user, resources.

And with forked processes, in which no thread but the one that forked goes on.
"""

from __future__ import annotations

import os
from _thread import RLock, get_ident  # those of threading, which takes as long to load as three modules of chai
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakMethod, WeakSet

from ..errors import UsageError

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    class Closable(Protocol):
        """An object with ``close``."""

        def close(self) -> None: ...

    Closed = TypeVar("Closed", bound=Closable)

    class Inherited(Protocol):
        """An object that a forked process cannot use as it is."""

        def forget(self) -> None:
            """Let go of what belongs to the process that this one was forked from."""


_inside: ContextVar[tuple[object, ...]] = ContextVar("inside", default=())
_inherited: WeakSet[Inherited] = WeakSet()


def forgets(thing: Inherited) -> None:
    """Call ``forget`` of a thing in every process that is forked from this one."""
    _inherited.add(thing)


def _forget() -> None:
    for thing in list(_inherited):
        thing.forget()


os.register_at_fork(after_in_child=_forget)


class Mutex:
    """A reentrant lock that is free in a forked process, unless the thread that forked holds it.

    Other threads do not exist there, so that they would never release it. What it guards must be valid at any moment.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = RLock()
        forgets(self)

    def forget(self) -> None:
        if self._lock.acquire(blocking=False):  # it was free, or this thread holds it
            self._lock.release()
        else:
            self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def inside() -> tuple[object, ...]:
    """Return the objects that this thread has entered, outermost first; empty outside any step of a network."""
    return _inside.get()


class Entered:
    """Add ``thing`` to ``inside`` during the block, in this thread and in threads that copy its context."""

    __slots__ = ("_thing", "_token")

    def __init__(self, thing: object) -> None:
        self._thing = thing

    def __enter__(self) -> None:
        self._token = _inside.set((*_inside.get(), self._thing))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _inside.reset(self._token)


class Turn(Mutex):
    """Admit one thread at a time, as a context manager; ``inside`` lists it meanwhile. Not reentrant across threads.

    Threads that hold turns and wait for each other's would wait forever: the last of them gets a UsageError instead.

    ``shared``: what several layers that have this turn in common are, for messages; "" if it is one layer's own.
    """

    _waits: ClassVar[dict[int, tuple[Turn, tuple[Turn, ...]]]] = {}  # by thread: what it waits for, and what it holds
    _guard: ClassVar[Mutex] = Mutex()  # of _waits

    __slots__ = ("_outer", "shared")

    def __init__(self, shared: str = "") -> None:
        super().__init__()
        self.shared = shared
        self._outer: list[tuple[object, ...]] = []

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            self._wait()
        outer = _inside.get()
        self._outer.append(outer)
        _inside.set((*outer, self))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _inside.set(self._outer.pop())
        self._lock.release()

    def _wait(self) -> None:
        thread, held = get_ident(), tuple(x for x in _inside.get() if isinstance(x, Turn))
        with self._guard:
            if not self._before().isdisjoint(held):
                raise UsageError(
                    "two threads would wait for each other: each runs a layer that runs a network, with a layer that the "
                    "other one runs",
                    hint="run such networks in one thread, or load each a second time",
                )
            self._waits[thread] = self, held
        try:
            self._lock.acquire()
        finally:
            with self._guard:
                del self._waits[thread]

    def _before(self) -> set[Turn]:
        """Return the turns that have to end before a thread that waits for this one is admitted."""
        turns, new = {self}, {self}
        while new:
            new = {turn for turn, held in self._waits.values() if not new.isdisjoint(held)} - turns
            turns |= new
        return turns


os.register_at_fork(after_in_child=Turn._waits.clear)


class Lifetime:
    """Call ``release`` after ``close``, but not before the last user has left: a user is a ``with`` block.

    A user that enters after ``close`` is admitted, and ``release`` is called again when it leaves, so that resources it
    acquired are released too. ``release`` is a method of the owner and held weakly: an owner that is dropped without
    ``close`` is freed at once, not by the next run of the garbage collector.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self.closed = False
        self._method = WeakMethod(release)
        self._users = 0
        self._lock = Mutex()  # the garbage collector may end a user in a thread that holds it

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._users -= 1
            last = self.closed and not self._users
        if last:
            self._release()

    def _release(self) -> None:
        release = self._method()
        if release is not None:
            release()

    def close(self) -> None:
        """Release now, or when the last user has left."""
        with self._lock:
            self.closed = True
            unused = not self._users
        if unused:
            self._release()


class Resources:
    """Objects of one owner that have ``close``: made when one is needed first, closed together."""

    def __init__(self) -> None:
        self._objects: dict[Callable[[], Any], Any] = {}
        self._lock = Mutex()

    def of(self, make: Callable[[], Closed]) -> Closed:
        """Return the object that ``make`` returned when it was needed first."""
        with self._lock:
            if make not in self._objects:
                self._objects[make] = make()
            thing: Closed = self._objects[make]
            return thing

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            for thing in self._objects.values():
                thing.close()
            self._objects.clear()
