"""Probes: single Tasks with random numbers like a network's, which each kind of Task defines to test a device.

Sizes are odd, so that no plane, tile or batch is full, and channels exceed a block of the array's inputs. Codes reach
both ends of their range. Seeds are fixed, so that a failure can be reproduced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from zlib import crc32

from ..blob import Array, Shape
from ..fixed import Format
from ..overlay import Overlay
from ..util.lazy_numpy import np
from .target import Target, fraction


@dataclass(frozen=True)
class Probe:
    """A Task to run alone, with the ``shapes`` of its blobs and the ``codes`` of those it reads."""

    name: str
    task: Any
    shapes: Mapping[str, Shape]
    codes: Mapping[str, Array]


@dataclass
class Maker:
    """Makes the probes of one kind of Task in formats of one scheme and width.

    ``size`` of every image is (height, width), ``slope`` that of leaky ReLUs. ``limits`` are those of the kind.
    """

    size: ClassVar[tuple[int, int]] = 11, 13
    slope: ClassVar[float] = 0.1
    overlay: Overlay
    limits: Any
    scheme: str
    bits: int
    kind: str
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng([self.bits, len(self.scheme), crc32(self.kind.encode())])
        self.batch = min(3, self.overlay.batch_max)
        self.step = self.overlay.array.inputs

    @property
    def unsigned(self) -> tuple[str, ...]:
        """Return the blobs that have unsigned codes in turn; () if the overlay has none."""
        return ("x", "y") if self.overlay.unsigned else ()

    def target(self, shapes: Mapping[str, Shape], largest: float, unsigned: Collection[str] = ()) -> Target:
        """Return a Target with formats for inputs up to 1 and an output "y" up to ``largest``.

        The formats of the ``unsigned`` blobs are unsigned.
        """
        formats = {name: self.format(largest if name == "y" else 1.0, name in unsigned) for name in shapes}
        return Target(self.overlay, formats, shapes)

    def format(self, largest: float, unsigned: bool = False) -> Format:
        """Return the format for magnitudes up to ``largest``."""
        value = largest if self.scheme == "Xilinx" else fraction(self.bits + unsigned, np.array(largest))
        return Format(self.scheme, self.bits, value, unsigned)

    def probe(self, name: str, task: Any, target: Target) -> Probe:
        """Return a Probe of a Task with random input codes; its name says which blobs have unsigned ones."""
        name += "".join(f" unsigned {blob}" for blob in target.shapes if target.formats[blob].unsigned)
        codes = {}
        for blob in task.inputs:
            low, high = target.formats[blob].range
            codes[blob] = self.random.integers(low, high + 1, target.shapes[blob]).astype(np.int8)
        return Probe(name, task, target.shapes, codes)
