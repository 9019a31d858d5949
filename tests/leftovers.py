"""Threads and open files that a test has not given back."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress


class Leftovers:
    """What this process holds now and did not hold when this was made, by names.

    Only more of something counts: what other tests have left may go at any moment, with the garbage or with its thread.
    """

    def __init__(self) -> None:
        self._threads, self._files = _threads(), _files()

    @property
    def threads(self) -> list[str]:
        """Threads, by the names that they were given."""
        return sorted((_threads() - self._threads).elements())

    @property
    def files(self) -> list[str]:
        """Files by their paths; sockets, pipes and the like by their kind."""
        return sorted((_files() - self._files).elements())

    def __bool__(self) -> bool:
        return bool(self.threads or self.files)

    def __repr__(self) -> str:
        return f"threads {self.threads}, files {self.files}"


def _threads() -> Counter[str]:
    return Counter(thread.name for thread in threading.enumerate())


def _files() -> Counter[str]:
    names: Counter[str] = Counter()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # of the listing itself, which is closed
            name = os.readlink(f"/proc/self/fd/{descriptor}")
            names[name if name.startswith("/") else name.partition(":[")[0]] += 1
    return names
