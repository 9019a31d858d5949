"""Compare: 1 where the numbers of two blobs are in a relation, else 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..blob import Array
from ..graph.params import choice
from ..util.lazy_numpy import np
from ._broadcast import PairLayer


class Compare(PairLayer):
    """Truth values as float32, as of ONNX's Greater, Less and Equal; the smaller blob is repeated as by Mul."""

    message = "compare_param"
    fork = "ONNX"
    indices = never_negative = True

    @dataclass(frozen=True)
    class Params:
        """The relation of the first bottom to the second."""

        operation: str = choice("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "EQUAL", default="GREATER")

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        compare: Any = getattr(np, self.params.operation.lower())
        return (compare(*bottoms).astype(np.float32),)
