"""What an overlay can do, one kind of Task per file: the one unit of fixed-point meaning.

A Task's ``define`` is the living specification in plain numpy: the emulator's kernels, the RTL and the board have to
give its codes bit for bit. Activations are codes (int8) in NCHW; where they lie is the device's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from ..blob import Array, Shape


@dataclass(frozen=True, eq=False)
class Task:
    """Reads placed blobs, writes one. ``origin`` names the prototxt layers it stands for."""

    kind: ClassVar[str]
    inputs: tuple[str, ...]
    output: str
    origin: tuple[str, ...]

    def define(self, *codes: Array) -> Array:
        """Codes (int8, NCHW) of the output from those of the inputs, by the definition."""
        raise NotImplementedError

    def written(self, output: Array, channels: int) -> Array:
        """The part of its output that the Task writes: all of it, or a Copy's ``channels``."""
        return output

    def macs(self, *shapes: Shape) -> int:
        """Multiply-accumulates for inputs of these shapes."""
        return 0
