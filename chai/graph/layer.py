"""Layer: what every layer type has, and the rules they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .. import tasks
from ..blob import Shape, count, show
from ..errors import ModelError, ShapeError
from ..limits import limits
from ..util.sharing import Turn
from ..util.text import visible
from .params import NoParams, Precision

if TYPE_CHECKING:
    from ..blob import Array
    from ..overlay import Overlay
    from ..tasks import Task
    from ..tasks.target import Target
    from ..tasks.window import Window

OutputKind = Literal["scores", "boxes", "map"]
OUTPUT_KINDS: tuple[OutputKind, ...] = ("scores", "boxes", "map")


class Layer:
    """One Caffe layer: its parameters, its shape rule and its float32 forward.

    ``blobs`` are the trained parameters in caffemodel order (float32, C-contiguous). A layer keeps no state between calls
    and never writes into its bottoms. It runs in one thread at a time, by ``turn``, which the copies that passes make share
    with it.

    How to add a layer type: one file in ``chai/layers`` that carries the type's name (``InnerProduct`` is in
    ``inner_product.py``), with a class of that name derived from Layer. There is no list to keep.

    1. ``Params`` is a frozen dataclass with the fields of the type's ``*_param``, named in ``message`` (graph/params.py has
       ranges and choices). A message that Caffe does not have goes into ``proto/caffe.proto`` too.
    2. ``shapes`` and ``forward`` are all that a type on the host needs; with trained parameters also ``weight_shapes``,
       with matrix products ``macs``.
    3. On an overlay: ``unsupported`` says why it cannot run there, ``lower`` returns its Tasks, ``parts`` the tops that
       are channels of its bottom.
    4. The properties of the section "for passes and the quantiser" tell them what they may do with it.
    5. The test compares ``forward`` with Caffe's formula, and its Tasks with ``forward``.
    """

    message: ClassVar[str | None] = None  # the *_param this type reads
    Params: ClassVar[type] = NoParams
    bottoms_allowed: ClassVar[tuple[int, int | None]] = (1, 1)  # least, most (None: any number)
    tops_allowed: ClassVar[tuple[int, int | None]] = (1, 1)
    source: ClassVar[bool] = False  # its tops are the inputs of the network
    training_only: ClassVar[bool] = False  # dropped in phase TEST: losses and their measures
    free_weights: ClassVar[bool] = False  # takes whatever trained parameters the caffemodel has
    carries_state: ClassVar[bool] = False  # Caffe's goes on where its last pass ended: ``resumed``
    dynamic: ClassVar[bool] = False  # the size of its tops is known only after forward
    fork: ClassVar[str | None] = None  # the fork that defines this type, None for BVLC and SSD
    on_device: ClassVar[bool] = False  # what it does is in Tasks alone: a layer of a compiled network
    clamps: bool = False  # whether its forward applies ``slope`` itself
    engine: ClassVar[str] = "host"  # how reports call what runs it
    type: str  # the prototxt's spelling; equals the class name except for custom layers

    def __init__(
        self,
        name: str,
        bottoms: tuple[str, ...] = (),
        tops: tuple[str, ...] = (),
        params: Any = None,
        blobs: list[Array] | None = None,
        type: str | None = None,
    ) -> None:
        self.name = name
        self.bottoms = bottoms
        self.tops = tops
        self.params = self.Params() if params is None else params
        self.blobs: list[Array] = [] if blobs is None else blobs
        self.type = type or self.__class__.__name__
        self.origin: tuple[str, ...] = (name,)  # prototxt layers this one stands for
        self.precision: Precision | None = None  # its precision_param
        self.slope: float | None = None  # of a ReLU taken in by a pass: 0 plain, else leaky
        self.ceiling: float | None = None  # of such a ReLU: its largest value
        self.place: str | None = None  # path:line of its definition
        self.turn = Turn()

    def __repr__(self) -> str:
        return visible(f"<{self.type} {self.name!r} {', '.join(self.bottoms)} -> {', '.join(self.tops)}>")

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return shapes of the tops for these bottoms. Raises ShapeError."""
        return bottoms[:1] * len(self.tops)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return shapes of the trained parameters, in caffemodel order."""
        return ()

    def fillers(self) -> tuple[Any, ...]:
        """Return the fillers of the trained parameters (``Filler`` or None), for networks without a caffemodel."""
        return ()

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        """Return multiply-accumulates of one forward pass; 0 for types that are not matrix products."""
        return 0

    def prepare(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> None:
        """Work that need not wait for the first image, once the shapes and the trained parameters are known."""

    def changed(self) -> None:
        """Its trained parameters may have changed: forget what was made of them."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        """Float32 tops (one array per top) from float32 bottoms. A top may be a view of a bottom."""
        raise NotImplementedError(self.type)

    @property
    def relays(self) -> bool:
        """Return whether its tops have the values of its first bottom, in the same order."""
        return False

    @property
    def decision(self) -> str | None:
        """Return how its top names classes: "softmax", "sigmoid" or "argmax"; None where the top may be anything."""
        return None

    def output_kind(self, top: Shape) -> OutputKind | None:
        """Return what a top of this shape is where it is an output of the network; None for none of the three.

        scores  a number per class: all elements of an image are along one axis
        boxes   rows of 7 numbers: image, class, score, and left, top, right, bottom as shares of the network's input
        map     (N, C, H, W), numbers per pixel
        """
        each = top[1:]
        if self.dynamic:
            return None
        if len(top) == 4 and count(top[2:]) > 1:
            return "map"
        return "scores" if count(each) == max(each, default=0) > 1 else None

    def resumed(
        self, bottoms: Sequence[Array], state: tuple[Array, ...] | None = None
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return the tops, and the state to be given with the next bottoms, of a type that ``carries_state``."""
        raise NotImplementedError(self.type)

    # -- on an overlay

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        """Return why the overlay cannot run this layer on bottoms of these shapes; None if it can."""
        return f"no {self.type} unit"

    @staticmethod
    def beyond(overlay: Overlay, kind: str, **values: int) -> str | None:
        """Return why a Task of this kind is outside the manifest's limits (``NAME_max`` of its section); None if
        inside."""
        limits = tasks.find(kind).limits(overlay)
        if limits is None:
            return f"no {kind} unit"
        for name, value in values.items():
            most = getattr(limits, f"{name}_max")
            if value > most:
                return f"{name} {value} is more than the overlay's {most}"
        return None

    @staticmethod
    def channel_step(overlay: Overlay) -> int:
        """Return what the first channel of a part of a blob is a multiple of."""
        limits = tasks.find("copy").limits(overlay)
        return 1 if limits is None else limits.channel_step

    def lower(self, target: Target) -> list[Task]:
        """Return the Tasks of this layer. Raises Unsupported when its numbers do not fit the overlay's arithmetic."""
        raise NotImplementedError(self.type)

    def parts(self, bottom: Shape) -> dict[str, int]:
        """Return tops that are channels of the bottom, from the first that is given on: their readers find them there."""
        return {}

    def affine(self) -> tuple[Array, Array] | None:
        """Return factor and addend per channel (C,) float64 if that is all this layer does."""
        return None

    # -- for passes and the quantiser

    can_clamp: ClassVar[bool] = False  # a ReLU after it may become its ``slope`` and ``ceiling``
    merges_formats: ClassVar[bool] = False  # its top holds the values of several bottoms, best in one format
    per_channel: ClassVar[bool] = False  # on an overlay it is one factor and one addend per channel: ``affine``
    precision_expected: ClassVar[bool] = False  # computes what needs a format of its own, also without ``blobs``
    probabilities: ClassVar[bool] = False  # its top shares 1 among classes, along ``params.axis``
    indices: ClassVar[bool] = False  # its top holds indices, not values

    @property
    def keeps_format(self) -> bool:
        """Return whether its tops have its bottom's format: nothing is computed that could need another."""
        return False

    @property
    def same_values(self) -> bool:
        """Return whether its tops are values of its bottoms, in their format: nothing is computed."""
        return self.keeps_format or self.merges_formats

    @property
    def averages(self) -> bool:
        """Return whether its tops are averages over pixels."""
        return False

    @property
    def error_sensitive(self) -> bool:
        """Return whether an error before it says little of the error after it."""
        return False

    @property
    def convolution(self) -> tuple[Window, int] | None:
        """Return the window and the groups of its weights ``blobs[0]`` (M, C/group, kh, kw) if it is a convolution."""
        return None

    @property
    def bias_blob(self) -> int | None:
        """Return which of ``blobs`` is added to its output; None if none is."""
        return None

    def bias_change(self, moved: Array) -> Array:
        """Return what is added to that blob to move its output by so much (C,)."""
        return moved

    def channels_from(self, bottom: str, shapes: Mapping[str, Shape]) -> int | None:
        """Return the channel of its top from which on the channels of a bottom come out, each scaled as it went in.

        None if they do not: scaling a channel would change another, or the result.
        """
        return None

    def multiplies_channels(self, bottom: Shape) -> bool:
        """Return whether its weights are multiplied with each channel of its one bottom apart, as ``rescaled`` needs."""
        return False

    def rescaled(self, into: Array | None, out: Array | None) -> list[Array]:
        """Return its blobs for a bottom whose channels were divided by ``into`` (C,) and a top to be divided by ``out``."""
        return self.blobs

    # -- words that every layer's refusals share

    def failure(self, error: ModelError) -> ModelError:
        """Return an error met inside this layer, with its name."""
        return ModelError(f"layer {self.name!r} ({self.type}): {error.message}", layer=self.name, hint=error.hint)

    def wrong(self, message: str, hint: str | None = None) -> ShapeError:
        """Return a ShapeError that names this layer: ``raise self.wrong(...)``."""
        return ShapeError(f"layer {self.name!r} ({self.type}): {message}", layer=self.name, hint=hint)

    def axis(self, value: int, shape: Shape, *, end: bool = False) -> int:
        """``value`` as a non-negative axis of ``shape`` (up to and including its length if ``end``)."""
        count = len(shape) + (1 if end else 0)
        if not -count <= value < count:
            raise self.wrong(f"axis {value} is outside a blob of {len(shape)} axes {show(shape)}")
        return value + count if value < 0 else value

    def spatial(self, shape: Shape) -> Shape:
        """``shape``, checked to be (N, C, H, W)."""
        if len(shape) != 4:
            raise self.wrong(f"expected a 4-axis blob (N, C, H, W), found {show(shape)}")
        return shape


def check_shape(layer: Layer, shape: Shape) -> None:
    """Refuse a top that no memory can hold: absurd, negative or overflowing sizes."""
    bound = limits()
    if len(shape) > bound.axes:
        raise layer.wrong(f"top of {len(shape)} axes; " + bound.exceeded("axes", len(shape)))
    if any(d < 0 for d in shape):
        raise layer.wrong(f"top of shape {show(shape)}: a size is negative")
    if prod(shape) > bound.blob_elements:
        raise layer.wrong(f"top of shape {show(shape)}: " + bound.exceeded("blob_elements", prod(shape)))
