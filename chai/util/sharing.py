"""Share an object among threads: locks that track their holder, lifetimes that wait for the last user, resources.

And with forked processes, in which no thread but the one that forked goes on.

A signal handler may raise an exception, as Ctrl-C does, in any code of the main thread; nothing here loses a lock or a user
to it. CPython runs handlers at the start of a function or a round of a loop, after a call has returned, and inside calls
that wait, which have no effect then. So nothing comes between ``finally:`` and the end of the first function in C that it
calls. Therefore what is taken is given back by such a function in a ``finally:``, which knows whether it had been taken:
never by a method in Python, as ``__exit__`` is, at whose start a handler may run. ``with`` is for a Mutex, whose ``__exit__``
is C, and whose ``__enter__`` is C where nothing comes between it and the block.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakMethod, WeakSet

from ..errors import UsageError

if TYPE_CHECKING:
    from typing import Protocol, TypeVar

    T = TypeVar("T")

    class RLock:
        """The lock of ``_thread``, for mypy, which knows neither its private methods nor that classes derive from it."""

        def __enter__(self) -> bool: ...
        def __exit__(self, *_: object) -> None: ...
        def acquire(self, blocking: bool = True) -> bool: ...
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def _recursion_count(self) -> int: ...
        def _at_fork_reinit(self) -> None: ...

    class Inherited(Protocol):
        """An object that a forked process cannot use as it is."""

        def forget(self) -> None:
            """Let go of what belongs to the process that this one was forked from."""

else:
    from _thread import RLock  # that of threading, which takes as long to load as three modules of chai


_inside: ContextVar[tuple[object, ...]] = ContextVar("inside", default=())
_inherited: WeakSet[Inherited] = WeakSet()


def forgets(thing: Inherited) -> None:
    """Call ``forget`` of a thing in every process that is forked from this one."""
    _inherited.add(thing)


def _forget() -> None:
    for thing in list(_inherited):
        thing.forget()


os.register_at_fork(after_in_child=_forget)


class Mutex(RLock):
    """A reentrant lock that is free in a forked process, unless the thread that forked holds it.

    Other threads do not exist there, so that they would never release it. What it guards must be valid at any moment.
    """

    __slots__ = ()

    def __init__(self) -> None:
        forgets(self)

    if sys.version_info >= (3, 14):  # handlers run between a call of __enter__ in C and the block that __exit__ ends

        def __enter__(self) -> bool:
            """Acquire it, or raise what a handler raised without holding it."""
            count = self._recursion_count()
            try:
                return self.acquire()
            except BaseException:
                if self._recursion_count() > count:
                    self.release()
                raise

    def forget(self) -> None:
        if self.acquire(blocking=False):  # it was free, or this thread holds it
            self.release()
        else:
            self._at_fork_reinit()  # as threading does


def inside() -> tuple[object, ...]:
    """Return the objects that this thread has entered, outermost first; empty outside any step of a network."""
    return _inside.get()


def in_layer() -> bool:
    """Return whether this thread runs a layer, or something else that has a Turn."""
    return any(isinstance(thing, Turn) for thing in _inside.get())


def entered(thing: object, call: Callable[..., T], *arguments: Any) -> T:
    """Return what ``call`` returns; ``inside`` lists ``thing`` meanwhile, in this thread and in threads that copy its context."""
    context = copy_context()
    context.run(_inside.set, (*_inside.get(), thing))
    return context.run(call, *arguments)


class Turn:
    """Admit one thread at a time to what it runs; ``inside`` lists it meanwhile. Not reentrant across threads.

    Threads that hold turns and wait for each other's would wait forever: the last of them gets a UsageError instead.

    ``shared``: what several layers that have this turn in common are, for messages; "" if it is one layer's own.
    """

    _waits: ClassVar[dict[object, tuple[Turn, tuple[Turn, ...]]]] = {}  # what a thread waits for, and what it holds
    _guard: ClassVar[Mutex] = Mutex()  # of a search in _waits, and of what it adds

    __slots__ = ("_lock", "shared")

    def __init__(self, shared: str = "") -> None:
        self.shared = shared
        self._lock = Mutex()

    def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what ``call`` returns, when no other thread runs something here. Raises UsageError for a circle of waits."""
        lock = self._lock
        if lock._is_owned():
            return call(*arguments)
        outer = _inside.get()
        try:
            if not lock.acquire(False):
                self._wait()
            _inside.set((*outer, self))
            return call(*arguments)
        finally:
            try:
                _inside.set(outer)
            finally:
                try:  # noqa: SIM105  # suppress is written in Python
                    lock.release()
                except RuntimeError:  # an exception came before this thread had it
                    pass

    def run_alone(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return what ``call`` returns, as ``run`` does, but ``inside`` does not list it: for what runs no network."""
        with self._lock:
            return call(*arguments)

    def _wait(self) -> None:
        key, held = object(), tuple(x for x in _inside.get() if isinstance(x, Turn))
        try:
            with self._guard:
                if not self._before().isdisjoint(held):
                    raise UsageError(
                        "two threads would wait for each other: each runs a layer that runs a network, with a layer that "
                        "the other one runs",
                        hint="run such networks in one thread, or load each a second time",
                    )
                self._waits[key] = self, held
            self._lock.acquire()
        finally:
            self._waits.pop(key, None)

    def _before(self) -> set[Turn]:
        """Return the turns that have to end before a thread that waits for this one is admitted."""
        waits, turns, new = list(self._waits.values()), {self}, {self}
        while new:
            new = {turn for turn, held in waits if not new.isdisjoint(held)} - turns
            turns |= new
        return turns


os.register_at_fork(after_in_child=Turn._waits.clear)


class Lifetime:
    """Call ``release`` after ``close``, but not before the last user has ended: what ``run`` or ``stream`` runs.

    A user that begins after ``close`` is admitted, and ``release`` is called again when it ends, so that resources it
    acquired are released too. ``release`` is a method of the owner and held weakly: an owner that is dropped without
    ``close`` is freed at once, not by the next run of the garbage collector.
    """

    def __init__(self, release: Callable[[], None]) -> None:
        self.closed = False
        self._method = WeakMethod(release)
        self._users: set[object] = set()
        self._due = False  # whether something may be there to be released
        self._lock = Mutex()  # the garbage collector may end a user in a thread that holds it

    def run(self, call: Callable[..., T], *arguments: Any) -> T:
        user = object()
        try:
            self._begin(user)
            return call(*arguments)
        finally:
            self._users.discard(user)
            self._ended()

    def stream(self, results: Iterator[T]) -> Generator[T, None, None]:
        user = object()
        try:
            self._begin(user)
            yield from results
        finally:
            self._users.discard(user)
            self._ended()

    def _begin(self, user: object) -> None:
        with self._lock:
            self._users.add(user)
            self._due = True

    def _ended(self) -> None:
        if not self.closed:
            return
        with self._lock:
            due = self._due and not self._users
            self._due = self._due and not due
        release = self._method() if due else None
        if release is not None:
            release()

    def close(self) -> None:
        """Release now, or when the last user has ended."""
        self.closed = self._due = True
        self._ended()


class Resources:
    """Objects of one owner that have ``close``: made when one is needed first, closed together."""

    def __init__(self) -> None:
        self._objects: dict[Callable[[], Any], Any] = {}
        self._lock = Mutex()

    def of(self, make: Callable[[], T]) -> T:
        """Return the object that ``make`` returned when it was needed first."""
        with self._lock:
            if make not in self._objects:
                self._objects[make] = make()
            thing: T = self._objects[make]
            return thing

    def close(self) -> None:
        with self._lock:
            for thing in self._objects.values():
                thing.close()
            self._objects.clear()
