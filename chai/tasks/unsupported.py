"""Unsupported: the reason why a layer's Tasks cannot be computed on an overlay, whatever its limits."""

from __future__ import annotations


class Unsupported(Exception):
    """Raised for a layer whose numbers do not fit the overlay's arithmetic; its text says why it runs on the host."""
