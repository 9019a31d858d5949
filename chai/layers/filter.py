"""Filter: the images of a batch that a selector picks."""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..graph import Layer


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
            raise self.wrong(f"{len(rest)} bottoms and a selector, but {len(self.tops)} tops; each bottom has its top")
        if not selector or count(selector) != selector[0]:
            raise self.wrong(f"the selector must have one number per image, found {show(selector)}")
        for i, shape in enumerate(rest):
            if shape[:1] != selector[:1]:
                raise self.wrong(f"bottom {i} is {show(shape)}, the selector {show(selector)}; the batches differ")
        return tuple(rest)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        marked = bottoms[-1].reshape(-1) != 0
        return tuple(x[marked] for x in bottoms[:-1])
