"""Loggers of chai, and meters that show how far long work is.

Messages of these loggers are ``visible``: layer names and paths in them come from files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from ..text import visible

if TYPE_CHECKING:
    from logging import Logger

# the name of some work -> a function to call with the finished amount and the total (None: unknown)
Meter = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
_meter: Meter | None = None


def meter(work: str) -> AbstractContextManager[Callable[[int, int | None], None]]:
    """Return a context with a function to call with the finished amount and the total; ``show_with`` lets it show them."""
    return nullcontext(lambda *_: None) if _meter is None else _meter(work)


def show_with(meter: Meter | None) -> None:
    """Let a meter show how far long work is; None: nothing is shown."""
    global _meter
    _meter = meter


class _Later:
    """The logger of a module of chai, made when it is first used: importing ``logging`` takes longer than most of chai."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        # below ``logging``'s own level, as long as no one can have chosen another
        if name in ("debug", "info") and "logging" not in sys.modules:
            return lambda *_, **__: None
        import logging

        log = logging.getLogger(self._name)
        log.addFilter(_visible)  # once: a logger keeps each filter only once
        return getattr(log, name)


def _visible(record: Any) -> bool:
    """Make the message of a record visible, for every handler."""
    record.msg, record.args = visible(record.getMessage()), ()
    return True


def logger(name: str) -> Logger:
    return cast("Logger", _Later(name))


@cache
def warn_once(name: str, text: str) -> None:
    """Log a warning, once in a process."""
    logger(name).warning("%s", text)
