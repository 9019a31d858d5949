"""What every device is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ..graph import Array, Shape
    from ..overlay import Overlay
    from ..tasks import Task


class Program:
    """Tasks compiled for a device, for blobs of certain shapes."""

    def run(self, blobs: dict[str, Array]) -> list[float] | None:
        """Run every Task: codes (int8, NCHW) of the segment's reads are in ``blobs``, those of its writes are added.

        Returns milliseconds per Task, or None where only the whole can be timed.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Device:
    """``name`` is what users type, ``summary`` one line about it; ``fixed`` devices compute Tasks in fixed point."""

    name: str
    summary: str
    fixed: ClassVar[bool] = False

    def status(self) -> tuple[bool, str]:
        """Whether it can be used here, and on what or why not."""
        raise NotImplementedError

    def compile(
        self,
        overlay: Overlay,
        tasks: Sequence[Task],
        shapes: Mapping[str, Shape],
        places: Mapping[str, tuple[str, int]],
    ) -> Program:
        """A Program for these Tasks; ``places`` are blobs that are parts of another: (blob, first channel)."""
        raise NotImplementedError(self.name)
