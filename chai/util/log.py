"""Loggers of chai, and meters that show how far long work is.

Messages of these loggers are ``visible``: layer names and paths in them come from files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from .text import visible

# the name of some work -> a function to call with the finished amount and the total (None: unknown)
Meter = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
_meter: Meter | None = None


@contextmanager
def meter(work: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with the finished amount and the total; it shows them if ``show_with`` was called."""
    if _meter is None:
        yield _untold
    else:
        with _meter(work) as tell:
            yield tell


def _untold(done: int, total: int | None) -> None:
    """Show nothing."""


def show_with(meter: Meter | None) -> None:
    """Let a meter show how far long work is; None: nothing is shown."""
    global _meter
    _meter = meter


class _Visible(logging.Filter):
    """Make the message of a record visible, for every handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = visible(record.getMessage()), ()
        return True


_VISIBLE = _Visible()


def logger(name: str) -> logging.Logger:
    """Return the logger of a module of chai."""
    log = logging.getLogger(name)
    log.addFilter(_VISIBLE)  # once: a logger keeps each filter object only once
    return log
