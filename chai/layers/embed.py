"""Embed: a trained row for each index."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape
from ..graph import Layer
from ..graph.params import Filler, nested, within
from ._index import rows


class Embed(Layer):
    """The bottom holds integers from 0 to input_dim - 1; the top has one more axis, of length num_output."""

    message = "embed_param"

    @dataclass(frozen=True)
    class Params:
        """input_dim rows of num_output numbers."""

        num_output: int = within(0, 2**31 - 1, 0)
        input_dim: int = within(0, 2**31 - 1, 0)
        bias_term: bool = True
        weight_filler: Filler | None = nested(Filler)
        bias_filler: Filler | None = nested(Filler)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if self.params.num_output < 1 or self.params.input_dim < 1:
            raise self.wrong("num_output or input_dim is missing")
        return ((*bottoms[0], self.params.num_output),)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        weights = (self.params.input_dim, self.params.num_output)
        return (weights, weights[1:]) if self.params.bias_term else (weights,)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        y = self.blobs[0][rows(self, bottoms[0], self.params.input_dim)]
        return (y + self.blobs[1] if self.params.bias_term else y,)
