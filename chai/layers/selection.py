"""Images or rows that other numbers select.

BatchReindex: images of a batch selected by index; they may be repeated or left out.
Embed: a trained row for each index.
Filter: the images of a batch that a selector picks.
"""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..errors import ModelError
from ..graph import Layer
from ..graph.params import Filler, MessageFields, nested, within
from ..text import number_of
from ..util.lazy_numpy import np


def rows(layer: Layer, index: Array, count: int) -> Array:
    """Convert ``index`` to integers as C does. Raises ModelError if one is outside 0 .. count - 1."""
    low, high = index.min(initial=0), index.max(initial=0)
    if not (low > -1 and high < count):  # written so that nan is refused too
        wrong = low if low <= -1 else high
        raise layer.failure(ModelError(f"index {wrong:g} is outside 0 .. {count - 1}"))
    return index.astype(np.intp)


class BatchReindex(Layer):
    """Image i of the top is image bottom_1[i] of bottom 0; bottom 1 has one axis."""

    bottoms_allowed = (2, 2)
    whole_batch = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        x, index = bottoms
        if not x or len(index) != 1:
            raise self.wrong(f"expected a batch and numbers along one axis, found {show(x)} and {show(index)}")
        return ((*index, *x[1:]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0][rows(self, bottoms[1], len(bottoms[0]))],)


class Embed(Layer):
    """The bottom holds integers from 0 to input_dim - 1; the top has one more axis, of length num_output."""

    class Params(MessageFields):
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


class Filter(Layer):
    """The last bottom is the selector, one number per image: each top has the images of its bottom with a number not 0.

    The shape rule assumes that all images pass, as their number is known only at run time.
    """

    bottoms_allowed = (2, None)
    tops_allowed = (1, None)
    dynamic = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        *rest, selector = bottoms
        if len(rest) != len(self.tops):
            tops = number_of(len(self.tops), "top")
            raise self.wrong(f"{number_of(len(rest), 'bottom')} and a selector, but {tops}; each bottom has its top")
        if not selector or count(selector) != selector[0]:
            raise self.wrong(f"the selector must have one number per image, found {show(selector)}")
        for i, shape in enumerate(rest):
            if shape[:1] != selector[:1]:
                raise self.wrong(f"bottom {i} is {show(shape)}, the selector {show(selector)}; the batches differ")
        return tuple(rest)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        marked = bottoms[-1].reshape(-1) != 0
        return tuple(x[marked] for x in bottoms[:-1])
