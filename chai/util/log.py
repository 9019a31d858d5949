"""Loggers whose messages are ``visible``: layer names and paths in them come from files."""

from __future__ import annotations

import logging

from .text import visible


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
