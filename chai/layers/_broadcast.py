"""Broadcasting: over some axes of the first bottom (Scale, Bias), and by numpy's rule (Add, Mul)."""

from __future__ import annotations

from typing import ClassVar

from .. import tasks
from ..blob import Shape, on_device, show
from ..graph import Arithmetic, Layer
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from ._affine import AffineLayer


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


def broadcast(layer: Layer, problem: str, *shapes: Shape) -> Shape:
    """Return the shape that these have together by numpy's rule. Raises ShapeError, with ``problem``, if they have none."""
    try:
        return tuple(map(int, np.broadcast_shapes(*shapes)))
    except ValueError:
        raise layer.wrong(f"{problem}: axes must be equal or 1") from None


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

    def operand(self, *bottoms: Shape) -> Shape:
        """Return the shape of the second operand."""
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


class PairLayer(Layer):
    """Two bottoms, aligned at their last axes; a missing axis, or one of length 1, is repeated."""

    bottoms_allowed = (2, 2)
    follows = own_format = True
    operation: ClassVar[str | None] = None  # Caffe's name of what an overlay computes for it

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        return (broadcast(self, f"{show(bottoms[0])} and {show(bottoms[1])} do not face each other", *bottoms),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        return self.without_unit if self.operation is None else pair_refused(self, overlay, self.operation, *bottoms)

    def lower(self, target: Arithmetic) -> list[Task]:
        assert self.operation is not None
        return [target.pair(self, self.operation)]
