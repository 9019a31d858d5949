"""Architectures: what another kind of accelerator than chai's array does in its own way.

How to add one: a folder ``chai/NAME`` whose ``architecture.py`` has the functions of ``Architecture``, a schema
``hw_overlays/NAME.schema.json``, and a manifest with ``"architecture": "NAME"``. It needs no registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

ARRAY = "array"  # chai's own, which is what a manifest without the key describes


class Sized(Protocol):
    """Sizes and time of a compiled segment, for reports."""

    @property
    def cycles(self) -> int: ...

    @property
    def sizes(self) -> Mapping[int, int]: ...

    @property
    def regions(self) -> Any: ...

    def listing(self) -> Iterable[str]:
        """Return what the accelerator fetches as lines of text."""


class Architecture(Protocol):
    """The module ``chai/NAME/architecture.py``; an overlay is given to each function."""

    def sections(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sections of an Overlay that a manifest of this architecture does not have."""

    def bitstream(self, overlay: Any) -> Any:
        """Return the published bitstream with ``url``, ``license``, ``bytes`` and ``sha256``; None if there is none."""

    def refusal(self, overlay: Any, task: Any, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
        """Return why it cannot run a Task; None if it can."""

    def cycles(self, overlay: Any, task: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Estimate the clock cycles of a Task."""

    def speed(self, overlay: Any, segments: Any) -> str:
        """Return the modelled time of a pass as text."""

    def segment(self, work: Any) -> Sized:
        """Return what the Tasks of a segment (a Work) become."""

    def saved(self, made: Any) -> tuple[Sequence[int], dict[str, Any]]:
        """Return a segment for a file: the instructions of each Task, and all of them and the constants as sections.

        Addresses are relative to the segment's regions.
        """

    def restored(
        self,
        overlay: Any,
        tasks: Any,
        shapes: Mapping[str, tuple[int, ...]],
        laid: Any,
        counts: Any,
        sections: Mapping[str, memoryview],
    ) -> Any:
        """Return the segment that was ``saved``, with ``counts`` instructions of each Task; without lowering anything."""


def named(name: str) -> Architecture | None:
    """Return the architecture of that name; None for chai's own array."""
    return None if name == ARRAY else cast(Architecture, import_module(f"chai.{name}.architecture"))
