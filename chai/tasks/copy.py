"""Copy: a blob into a part of another, rescaled where the formats differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fixed import Requantization, requantize
from . import Task

if TYPE_CHECKING:
    from ..blob import Array


@dataclass(frozen=True, eq=False)
class Copy(Task):
    """Writes channels from ``first`` on of its output; ``requantization`` None moves the codes as they are."""

    kind = "copy"
    first: int
    requantization: Requantization | None

    def define(self, *codes: Array) -> Array:
        return codes[0] if self.requantization is None else requantize(codes[0], self.requantization)

    def written(self, output: Array, channels: int) -> Array:
        return output[:, self.first : self.first + channels]
