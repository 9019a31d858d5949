"""Architectures: what another kind of accelerator than chai's array does in its own way.

How to add one: a folder ``chai/NAME`` whose ``architecture.py`` has the functions of ``Architecture``, a schema
``hw_overlays/NAME.schema.json``, and a manifest with ``"architecture": "NAME"``. It needs no registration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class Bus(Protocol):
    """Reaches registers by their offset in bytes."""

    def read(self, offset: int) -> int:
        """Return the value of a register."""

    def write(self, offset: int, value: int) -> None:
        """Write a register."""


class Design(NamedTuple):
    """Facts of a published bitstream that a handoff would hold.

    ``files``    the published files that fit, each with ``bytes`` and ``sha256``
    ``clock``    the number of the processor's clock that drives it, at the manifest's frequency
    ``windows``  address and bytes of each window of registers
    """

    files: Sequence[Any]
    clock: int
    windows: Mapping[str, tuple[int, int]]


class Proof(NamedTuple):
    """A compiled segment with the codes that it reads and those that it has to write, by blob (int8, NCHW)."""

    name: str
    segment: Any
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


class Driver(Protocol):
    """Runs compiled segments in a ``memory``, as in ``chai/driver/memory.py``, on a board with the design."""

    def check(self, segment: Any, memory: Any) -> None:
        """Check what is in memory before its first start. Raises DeviceError."""

    def start(self, segment: Any, memory: Any) -> None:
        """Start a segment."""

    def ended(self, segment: Any, memory: Any) -> bool:
        """Return whether it has ended."""

    def late(self, segment: Any, memory: Any, waited: str) -> Exception:
        """Return the error of one that has not ended after ``waited``, with the layer."""

    def proofs(self) -> Iterable[Proof]:
        """Return what has to come out right before anything else runs."""


class Architecture(Protocol):
    """The module ``chai/NAME/architecture.py``; an overlay is given to each function."""

    def sections(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sections of an Overlay that a manifest of this architecture does not have."""

    def bitstream(self, overlay: Any) -> Any:
        """Return the published bitstream with ``url``, ``license``, ``bytes`` and ``sha256``; None if there is none."""

    def design(self, overlay: Any) -> Design:
        """Return how the published bitstream is brought up on a board."""

    def driver(self, overlay: Any, windows: Mapping[str, Bus]) -> Driver:
        """Return what runs segments through these windows of registers."""

    def refusal(self, overlay: Any, task: Any, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
        """Return why it cannot run a Task; None if it can."""

    def cycles(self, overlay: Any, task: Any, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Estimate the clock cycles of a Task."""

    def speed(self, overlay: Any, segments: Any) -> str:
        """Return the modelled time of a pass as text."""

    def segment(self, work: Any) -> Any:
        """Return what the Tasks of a segment (a Work) become: a HostBlobs."""

    def saved(self, segment: Any) -> tuple[Sequence[int], dict[str, Any]]:
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
