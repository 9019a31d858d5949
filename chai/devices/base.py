"""What every device says of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """``name`` is what users type, ``summary`` one line about it."""

    name: str
    summary: str

    def status(self) -> tuple[bool, str]:
        """Whether it can be used here, and on what or why not."""
        raise NotImplementedError
