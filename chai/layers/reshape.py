"""Reshape: the same numbers in the same order in another shape."""

from __future__ import annotations

from ..blob import Array, Shape, count, show
from ..graph.params import BlobShape, MessageFields, axis_index, nested, size, within
from ._squares import SquaresLayer, in_squares


class Reshape(SquaresLayer):
    """A dim of 0 copies the bottom's, one dim of -1 is inferred. The top is a view of the bottom.

    pixelshuffler r above 1: channel (c * r + i) * r + j becomes pixel (i, j) of the r x r squares of channel c.
    """

    class Params(MessageFields):
        """shape replaces ``num_axes`` axes (-1: all) from ``axis``.

        The Synopsys fork's pixelshuffler is another operation, which ignores the other fields.
        """

        shape: BlobShape | None = nested(BlobShape)
        axis: int = axis_index(0)
        num_axes: int = within(-1, 32, -1)
        pixelshuffler: int = size(1)

    @property
    def relays(self) -> bool:
        return bool(self.params.pixelshuffler == 1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        bottom, p = bottoms[0], self.params
        if p.pixelshuffler > 1:
            n, c, h, w = self.spatial(bottom)
            r = p.pixelshuffler
            if c % (r * r):
                raise self.wrong(f"the {c} channels of {show(bottom)} cannot be made into squares of {r}x{r}")
            return ((n, c // (r * r), h * r, w * r),)
        if p.shape is None:
            raise self.wrong("shape is missing")
        first = self.axis(p.axis, bottom, end=True)
        last = len(bottom) if p.num_axes == -1 else first + p.num_axes
        if last > len(bottom):
            raise self.wrong(f"num_axes {p.num_axes} from axis {first} is more than the blob {show(bottom)} has")
        dims = list(p.shape.dim)
        for i, dim in enumerate(dims):
            if dim == 0:
                if first + i >= len(bottom):
                    raise self.wrong(f"dim {i} copies axis {first + i}, which the blob {show(bottom)} does not have")
                dims[i] = bottom[first + i]
        if dims.count(-1) > 1:
            raise self.wrong("more than one dim is -1")
        around = count(bottom[:first]) * count(bottom[last:])
        if -1 in dims:
            others = around * count(tuple(d for d in dims if d != -1))
            if others == 0 or count(bottom) % others:
                raise self.wrong(
                    f"{count(bottom)} elements cannot be shaped to {dims}: {count(bottom)} / {others} is not whole"
                )
            dims[dims.index(-1)] = count(bottom) // others
        top = (*bottom[:first], *dims, *bottom[last:])
        if count(top) != count(bottom):
            raise self.wrong(
                f"{show(bottom)} ({count(bottom)} elements) cannot be shaped to {show(top)} ({count(top)})"
            )
        return (top,)

    @property
    def keeps_format(self) -> bool:
        return bool(self.params.pixelshuffler > 1)

    @property
    def squares(self) -> tuple[int, bool] | str:
        return self.without_unit if self.params.pixelshuffler == 1 else (self.params.pixelshuffler, True)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        if self.params.pixelshuffler > 1:
            return (in_squares(bottoms[0], self.params.pixelshuffler, outer=True),)
        return super().forward(*bottoms)
