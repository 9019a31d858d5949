"""Numbers of a second operand that lie over some axes of the first bottom.

Bias: y = x + b, with b broadcast over some axes.
Scale: y = s * x (+ b), with s and b broadcast over some axes; usually per channel, after a BatchNorm.
"""

from __future__ import annotations

from typing import ClassVar

from .. import kernels, tasks
from ..blob import Array, Shape, on_device, show
from ..graph import Arithmetic, Layer
from ..graph.params import Filler, MessageFields, axis_index, nested, within
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from .batch_norm import AffineLayer


def pair_refused(layer: Layer, overlay: Overlay, operation: str, first: Shape, second: Shape) -> str | None:
    """Return why the overlay cannot compute an operation of two blobs, of which one may be a vector; None if it can."""
    if operation not in getattr(tasks.find("eltwise").limits(overlay), "operations", ()):
        return layer.without_unit
    if layer.slopes is not None or (layer.slope and operation != "SUM"):
        return "a ReLU with slopes after it"
    one, two = sorted((on_device(first), on_device(second)), key=lambda shape: shape[2:], reverse=True)
    if len(one) != 4 or one[:2] != two[:2] or two[2:] not in (one[2:], (1, 1)):
        return f"{show(first)} and {show(second)} are no two maps of one shape, nor a map and a number for each of its channels"
    sizes = {"size": max(one[2:]), "channels": one[1]}
    return layer.beyond(overlay, "eltwise", operation=operation, vector=one != two, leaky=bool(layer.slope), **sizes)


class BroadcastLayer(AffineLayer):
    """The second operand is the second bottom, or else a trained blob of ``num_axes`` axes (-1: all) from ``axis`` on.

    An overlay runs a trained one as a factor or an addend per channel, a second bottom as an ``operation`` of two blobs.
    """

    operation: ClassVar[str]
    operand_word: ClassVar[str]
    new_tops = rectifies = True
    bottoms_allowed = (1, 2)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        if len(bottoms) == 2 and not bottoms[1]:  # a scalar fits anywhere
            return bottoms[:1]
        first = self.axis(self.params.axis, bottoms[0])
        if len(bottoms) == 2:
            if bottoms[0][first : first + len(bottoms[1])] != bottoms[1]:
                raise self.wrong(
                    f"the second bottom {show(bottoms[1])} does not lie over {show(bottoms[0])} from axis {first}"
                )
        elif self.params.num_axes > len(bottoms[0]) - first:
            raise self.wrong(
                f"num_axes {self.params.num_axes} from axis {first} is more than the blob {show(bottoms[0])} has"
            )
        return bottoms[:1]

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        addends = int(getattr(self.params, "bias_term", False))  # Scale's
        return (self.operand(*bottoms),) * (int(len(bottoms) == 1) + addends)

    def operand(self, *bottoms: Shape) -> Shape:
        if len(bottoms) == 2:
            return bottoms[1]
        first = self.axis(self.params.axis, bottoms[0])
        axes = self.params.num_axes
        return bottoms[0][first:] if axes == -1 else bottoms[0][first : first + axes]

    def covered(self, *bottoms: Shape) -> range:
        """Return the axes of the first bottom that the second operand has, too."""
        first = self.axis(self.params.axis, bottoms[0])
        return range(first, first + len(self.operand(*bottoms)))

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        return 0 in self.covered(*bottoms) and self.weight_shapes(*bottoms) != ()  # numbers for each place in a batch

    def laid_over(self, shape: Shape, operand: Shape) -> Shape:
        """Return the shape ``operand`` with trailing ones, ready to broadcast over ``shape``."""
        if not operand:
            return ()
        return operand + (1,) * (len(shape) - self.axis(self.params.axis, shape) - len(operand))

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms) == 1:
            return super().unsupported(overlay, *bottoms)
        if getattr(self.params, "bias_term", False) or self.axis(self.params.axis, bottoms[0]):
            return f"it does more than one {self.operand_word} for each channel of each image"
        return pair_refused(self, overlay, self.operation, *bottoms)

    def lower(self, target: Arithmetic) -> list[Task]:
        return super().lower(target) if len(self.bottoms) == 1 else [target.pair(self, self.operation)]

    @property
    def per_channel_only(self) -> bool:
        """Return whether the trained numbers are one for each channel."""
        return len(self.bottoms) == 1 and self.params.axis in (1, -3) and self.params.num_axes == 1


class Bias(BroadcastLayer):
    """With two bottoms the second one is b."""

    operation, operand_word = "SUM", "addend"

    class Params(MessageFields):
        """num_axes -1 means all axes from ``axis``."""

        axis: int = axis_index(1)
        num_axes: int = within(-1, 32, 1)
        filler: Filler | None = nested(Filler)

    def fillers(self) -> tuple[Filler | None, ...]:
        return (self.params.filler or Filler(),)

    def affine(self) -> tuple[Array, Array] | None:
        if not self.per_channel_only:
            return None
        return np.ones(len(self.blobs[0])), self.blobs[0].astype(np.float64)

    @property
    def bias_blob(self) -> int | None:
        return None if len(self.bottoms) == 2 else 0

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        if len(bottoms) == 2:
            return None
        return kernels.floats.scale(bottoms[0], self.covered(*bottoms), None, self.blobs[0], rectified)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        bias = bottoms[1] if len(bottoms) == 2 else self.blobs[0]
        return (x + bias.reshape(self.laid_over(x.shape, bias.shape)),)


class Scale(BroadcastLayer):
    """With two bottoms the second one is s, and the only trained blob is b."""

    operation, operand_word = "PROD", "factor"

    class Params(MessageFields):
        """num_axes -1 means all axes from ``axis``. Without a caffemodel s is 1 and b is 0."""

        axis: int = axis_index(1)
        num_axes: int = within(-1, 32, 1)
        filler: Filler | None = nested(Filler)
        bias_term: bool = False
        bias_filler: Filler | None = nested(Filler)

    def fillers(self) -> tuple[Filler | None, ...]:
        factor = () if len(self.bottoms) == 2 else (self.params.filler or Filler(value=1.0),)
        return (*factor, self.params.bias_filler or Filler())

    def affine(self) -> tuple[Array, Array] | None:
        if not self.per_channel_only:
            return None
        factor = self.blobs[0].astype(np.float64)
        return factor, self.blobs[1].astype(np.float64) if self.params.bias_term else np.zeros_like(factor)

    @property
    def bias_blob(self) -> int | None:
        return 1 if self.params.bias_term else None

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        two = len(bottoms) == 2
        if two and not bottoms[1]:
            return None
        factors, addends = None if two else self.blobs[0], self.blobs[-1] if self.params.bias_term else None
        return kernels.floats.scale(bottoms[0], self.covered(*bottoms), factors, addends, rectified, two)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        scale = bottoms[1] if len(bottoms) == 2 else self.blobs[0]
        over = self.laid_over(x.shape, scale.shape)
        y = x * scale.reshape(over)
        if self.params.bias_term:
            y += self.blobs[-1].reshape(over)
        return (y,)
