"""The same numbers in another order, or along other axes.

Permute: the axes in another order (SSD).
ShapeOf: the sizes of a blob's axes, as numbers.
Squeeze: a blob without axes of length 1.
Tile: a blob repeated along an axis.
"""

from __future__ import annotations

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import MessageFields, axis_index, within
from ..util.lazy_numpy import np


class Permute(Layer):
    """0, 2, 3, 1 turns NCHW into NHWC."""

    class Params(MessageFields):
        """order[i] is the bottom's axis that becomes axis i; the other axes follow in their original order."""

        order: tuple[int, ...] = within(0, 31, ())

    def _order(self, shape: Shape) -> tuple[int, ...]:
        order = self.params.order
        if len(set(order)) != len(order) or any(a >= len(shape) for a in order):
            raise self.wrong(f"order {list(order)} does not name axes of {show(shape)} once each")
        return (*order, *(a for a in range(len(shape)) if a not in order))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (tuple(bottoms[0][a] for a in self._order(bottoms[0])),)

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return self._order(bottoms[0])[:1] != (0,)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.asarray(bottoms[0].transpose(self._order(bottoms[0].shape)), order="C"),)


class ShapeOf(Layer):
    """A blob of one axis: what ONNX's Shape returns to the caller, for the batch of this pass."""

    fork = "ONNX"
    indices = whole_batch = True

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if not bottoms[0]:
            raise self.wrong("a scalar has no axes")
        return ((len(bottoms[0]),),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.array(bottoms[0].shape, np.float32),)


class Squeeze(Layer):
    """The top is a view of the bottom."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"

    class Params(MessageFields):
        """The axes to remove; all axes of length 1 if none are given."""

        axis: tuple[int, ...] = within(-32, 31, ())

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        gone = {self.axis(a, shape) for a in self.params.axis} or {i for i, d in enumerate(shape) if d == 1}
        for i in gone:
            if shape[i] != 1:
                raise self.wrong(f"axis {i} of {show(shape)} is {shape[i]} long; only axes of length 1 can go")
        return (tuple(d for i, d in enumerate(shape) if i not in gone),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (bottoms[0].reshape(self.shapes(bottoms[0].shape)[0]),)


class Tile(Layer):
    """Two tiles of 1 2 are 1 2 1 2."""

    class Params(MessageFields):
        axis: int = axis_index(1)
        tiles: int | None = within(1, 2**31 - 1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, tiles = bottoms[0], self.params.tiles
        along = self.axis(self.params.axis, shape)
        if tiles is None:
            raise self.wrong("tiles is missing")
        return ((*shape[:along], shape[along] * tiles, *shape[along + 1 :]),)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        times = [1] * x.ndim
        times[self.axis(self.params.axis, x.shape)] = self.params.tiles
        return (np.tile(x, times),)
