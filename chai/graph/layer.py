"""Layer: the base class of every layer type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..blob import Array, Shape, count, on_device, show
from ..errors import ModelError, ShapeError
from ..fixed import Format
from ..kernels.native import NativeLayer
from ..limits import limits
from ..overlay import Overlay
from ..tasks import Task, find
from ..tasks.window import Window
from ..text import number_of, visible
from ..util.lazy_numpy import np
from ..util.sharing import Turn
from .params import LossParams, MessageFields

if TYPE_CHECKING:
    from ..tasks.arithmetic import Arithmetic as Arithmetic
    from ..tasks.precision import Precision
else:
    Arithmetic = Any  # an annotation must not load what makes Tasks

SIZES = 4  # sizes of bottoms for which constant tops are kept
OutputKind = Literal["scores", "boxes", "map"]
OUTPUT_KINDS: tuple[OutputKind, ...] = ("scores", "boxes", "map")


class Layer:
    """One Caffe layer: its parameters, its shape rule and its float32 forward.

    ``blobs`` are the trained parameters in caffemodel order (float32, C-contiguous). A layer keeps no state between calls
    and never writes into its bottoms. The lock ``turn``, shared with the copies that passes make, lets one thread run it
    at a time.

    A type needs ``shapes`` and ``forward``; with trained parameters also ``weight_shapes``, with matrix products ``macs``. A
    method that raises NotImplementedError here is called only where a property, or ``unsupported``, allows it. How to add a
    type: docs/architecture.md.
    """

    message: ClassVar[str | None] = None  # its *_param field, if that is not named after the type
    Params: ClassVar[type] = MessageFields
    bottoms_allowed: tuple[int, int | None] = (1, 1)  # minimum, maximum (None: no maximum)
    tops_allowed: tuple[int, int | None] = (1, 1)
    source: ClassVar[bool] = False  # its tops are the inputs of the network
    training_only: ClassVar[bool] = False  # losses and measures: computed after a pass whose labels are fed
    skipped: ClassVar[bool] = False  # never computed, in whatever phase: writers, and losses of forks
    free_weights: ClassVar[bool] = False  # accepts any trained parameters of the caffemodel
    carries_state: ClassVar[bool] = False  # in Caffe, its state carries over to the next pass: see ``resumed``
    constant: ClassVar[bool] = False  # its tops depend on its parameters and the shapes of its bottoms alone
    whole_batch: ClassVar[bool] = False  # whatever its bottoms are, see ``mixes_images``
    new_tops: ClassVar[bool] = False  # each pass has new arrays for its tops, which nothing else refers to
    rectifies: ClassVar[bool] = False  # ``rectified`` can compute it and the ReLU after it at once
    dynamic: bool = False  # the size of its tops is known only after forward
    renews: bool = False  # its tops may have other sizes in a pass than ``shapes`` says, for equal bottoms
    fork: ClassVar[str | None] = None  # the fork that defines this type, None for BVLC and SSD
    on_device: ClassVar[bool] = False  # a layer of a compiled network that exists only as Tasks
    loss = LossParams()  # loss_param of losses
    clamps: bool = False  # whether its forward applies ``slope`` itself
    follows: bool = False  # runs on an overlay only if its input is there: else it does not pay to convert it
    whole_windows: bool = False  # a Pooling drops no window in the padding: see ``Arithmetic.whole_windows``
    elementwise: bool = False  # each number of its only top is one function of the same number of its only bottom
    pointwise: ClassVar[bool] = False  # the same of the same numbers of several bottoms, if these have one shape
    recodes: bool = False  # it changes no number but by the format of its top: codes made of codes
    other: Callable[..., Array] | None = None  # what an overlay's arithmetic computes in place of Caffe's
    engine: ClassVar[str] = "host"  # name in reports of the engine that runs it
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
        self.origin: tuple[str, ...] = (name,)  # prototxt layers that this one replaces
        self.precision: Precision | None = None  # its precision_param
        self.slope: float | None = None  # negative slope of a ReLU that a pass folded in: 0 if plain
        self.ceiling: float | None = None  # upper limit of that ReLU
        self.slopes: Array | None = None  # negative slopes (C,) of a PReLU that an overlay computes with it
        self.tied = False  # an arithmetic's pass makes one operation of it and another layer: see passes.fuse_pairs
        self.place: str | None = None  # path:line of its definition
        # of a part of a composed layer: those that hold its trained parameters, the innermost first, and which they are
        self.shares: tuple[tuple[str, tuple[int, ...]], ...] = ()
        self.shared: tuple[str, ...] = ()  # names of its trained parameters: layers with one name have one array
        self.lent = False  # a program may change numbers of its trained parameters at any time
        self.turn = Turn()
        self._by_shapes: dict[tuple[Shape, ...], tuple[Array, ...]] = {}  # tops by bottoms; copies share them

    def __repr__(self) -> str:
        return visible(f"<{self.type} {self.name!r} {', '.join(self.bottoms)} -> {', '.join(self.tops)}>")

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the tops for these bottoms. Raises ShapeError."""
        return bottoms[:1] * len(self.tops)

    def weight_shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the trained parameters, in caffemodel order."""
        return ()

    def fillers(self) -> tuple[Any, ...]:
        """Return the fillers of the trained parameters (``Filler`` or None), for networks without a caffemodel.

        Those of weights and bias, by Caffe's names, unless the type has others.
        """
        return getattr(self.params, "weight_filler", None), getattr(self.params, "bias_filler", None)

    @property
    def defined(self) -> str | None:
        """Return path:line of the code that computes it; None if that is chai's own."""
        return None

    def implementation(self, bottoms: tuple[Shape, ...]) -> str | None:
        """Return which of several implementations runs for bottoms of these shapes, and why; None if it has only one."""
        return None

    def opencl_source(self, *bottoms: Shape) -> str | None:
        """Return the source that is compiled for bottoms of these shapes, if a compiler for OpenCL gets any."""
        return None

    def macs(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> int:
        """Return the multiply-accumulates of one forward pass; 0 for types without matrix products."""
        return 0

    def prepare(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> None:
        """Do work ahead of the first image, once shapes and trained parameters are known."""
        if self.constant:
            self.constants_for(bottoms)

    def constants_for(self, bottoms: tuple[Shape, ...]) -> tuple[Array, ...]:
        """Return the tops for bottoms of these shapes, computed once: not to be written. Of a type that is ``constant``."""
        if (tops := self._by_shapes.get(bottoms)) is None:
            if len(self._by_shapes) == SIZES:
                self._by_shapes.pop(next(iter(self._by_shapes)), None)
            empty = [np.broadcast_to(np.float32(0), shape) for shape in bottoms]  # one number in memory
            tops = tuple([np.asarray(top, np.float32) for top in self.forward(*empty)])
            self._by_shapes[bottoms] = tops
        return tops

    def renew(self) -> None:
        """Determine the sizes of the tops again, for ``shapes``, if it ``renews``."""

    def enter(self, net: object, autotune: bool, jit: bool) -> None:
        """Take the options that a network has for custom layers; release what the layer holds once ``net`` is dropped."""

    def close(self) -> None:
        """Release what it holds besides arrays, when its network is closed."""

    def changed(self) -> None:
        """Discard everything derived from the trained parameters, which may have changed."""

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        """Compute the float32 tops (one array per top) from float32 bottoms. Tops may be views, as here if it ``relays``."""
        if not self.relays:
            raise NotImplementedError(self.type)
        return tuple([bottoms[0].reshape(shape) for shape in self.shapes(bottoms[0].shape)])

    def clamped(self, tops: tuple[Array, ...], rectified: bool) -> tuple[Array, ...]:
        """Return tops after the ReLU and the ceiling that a pass folded in; ``rectified``: they are after the ReLU already."""
        if self.slope is not None and not rectified:
            slope = np.float32(self.slope)
            tops = tuple([np.where(t < 0, slope * t, t) if slope else np.maximum(t, 0) for t in tops])
        if self.ceiling is not None:
            tops = tuple([np.minimum(t, np.float32(self.ceiling)) for t in tops])
        return tops

    def rectified(self, *bottoms: Array) -> tuple[Array, ...]:
        """Compute ``forward``, with 0 instead of each number below 0. Needs ``rectifies``, and ``new_tops`` unless replaced."""
        tops = map(np.asarray, self.forward(*bottoms))  # a blob without axes is an array, too
        return tuple([np.maximum(top, 0, out=top) for top in tops])

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        """Return ``forward``, or ``rectified``, on bottoms of these shapes in C; None if Python computes it."""
        return NativeLayer(None) if self.relays and not rectified else None

    @property
    def rectifier(self) -> bool:
        """Return whether it computes max(x, 0)."""
        return False

    def takes_codes(self, bottoms: tuple[Shape, ...]) -> bool:
        """Return whether it should run on codes if all its bottoms, of these shapes, are codes on the device."""
        return False

    def on_codes(self, shapes: Mapping[str, Shape], formats: Mapping[str, Format]) -> Callable[..., tuple[Array, ...]]:
        """Return its forward from codes to codes (int8), for shapes and formats by blob id. Needs ``takes_codes``."""
        raise NotImplementedError(self.type)

    @property
    def relays(self) -> bool:
        """Return whether its tops have the values of its first bottom, in the same order."""
        return False

    @property
    def decision(self) -> str | None:
        """Return how its top identifies classes: "softmax", "sigmoid" or "argmax"; None if it may hold anything."""
        return None

    def images_alone(self, bottoms: tuple[Shape, ...]) -> bool:
        """Return whether it computes each image of a batch (axis 0) without looking at the others."""
        return not (self.carries_state or self.dynamic or self.mixes_images(bottoms))

    def mixes_images(self, bottoms: tuple[Shape, ...]) -> bool:
        """Return whether a value of a top depends on more of a batch than one image, or a top has no axis of the images.

        Here by sizes: whether a top's first axis is no bottom's. A type that can mix images without that says so itself.
        """
        if self.whole_batch or self.constant or not bottoms:
            return self.whole_batch
        return not {top[:1] for top in self.shapes(*bottoms)} <= {bottom[:1] for bottom in bottoms}

    def output_kind(self, top: Shape) -> OutputKind | None:
        """Return what a network output of this shape holds; None if it is none of the three.

        scores  a number per class: all elements of an image are along one axis
        boxes   rows of 7 numbers: image, class, score, and left, top, right, bottom relative to the input's size
        map     (N, C, H, W), numbers per pixel
        """
        if self.dynamic:
            return None
        if len(top) == 4 and count(top[2:]) > 1:
            return "map"
        return "scores" if count(top[1:]) == max(top[1:], default=0) > 1 else None

    def resumed(
        self, bottoms: Sequence[Array], state: tuple[Array, ...] | None = None
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return the tops, and the state to pass with the next bottoms, of a type that ``carries_state``."""
        raise NotImplementedError(self.type)

    # -- on an overlay

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        """Return why the overlay cannot run this layer on bottoms of these shapes; None if it can."""
        unit = find("copy").limits(overlay) if self.elementwise else None
        if unit is None or not unit.lookup:
            return self.without_unit
        shape = on_device(bottoms[0])
        if len(shape) != 4:
            return f"a blob of {number_of(len(shape), 'axis')}"
        return self.beyond(overlay, "copy", size=max(shape[2:]), channels=shape[1])

    def unlike_caffe(self, *bottoms: Shape) -> str | None:
        """Return how the sizes of its tops differ from Caffe's for an overlay's arithmetic; None if they do not."""
        return None

    @property
    def without_unit(self) -> str:
        """Return why it runs on the host where an overlay has no unit for it."""
        return f"no {self.type} unit"

    @property
    def bends(self) -> dict[str, bool]:
        """Return what the limits of a Task are compared with for its ``slope`` or ``slopes``."""
        return {"leaky": self.slopes is not None or bool(self.slope), "prelu": self.slopes is not None}

    @staticmethod
    def beyond(overlay: Overlay, kind: str, **values: int | bool | str) -> str | None:
        """Return why the manifest excludes a Task of this kind with these values, see ``TaskLimits.excluded``."""
        limits = find(kind, overlay.arithmetic).limits(overlay)
        return f"no {kind} unit" if limits is None else limits.excluded(kind, **values)

    @staticmethod
    def channel_step(overlay: Overlay) -> int:
        """Return the number that the first channel of a view of a blob must be a multiple of."""
        limits = find("copy").limits(overlay)
        return overlay.layout.channels_per_word if limits is None else limits.channel_step

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return the Tasks of this layer. Raises Unsupported if its numbers do not fit the overlay's arithmetic."""
        if not self.elementwise:
            raise NotImplementedError(self.type)
        from ..tasks.lookup import lone  # float networks need no Tasks

        return [lone(self.of_numbers, (self.bottoms[0], self.tops[0]), self.origin, target)]

    def beside(self, functions: Mapping[str, Callable[..., Array]]) -> Layer:
        """Return the layer that the host computes in its place, with ``other``, for an overlay's ``Arithmetic.on_host``."""
        own = copy(self)
        own.other = functions.get(self.type)
        return own if own.other else self

    def apart(self) -> list[Layer]:
        """Return the layers that a pass joined into this one, which the host runs in its place; [] if it runs this one."""
        return []

    def of_numbers(self, x: Array) -> Array:
        """Return the top for any numbers, of any shape with four axes, of a type that is ``elementwise``."""
        return self.clamped(self.forward(x), self.clamps)[0]

    def parts(self, bottom: Shape) -> dict[str, int]:
        """Map each top that is a view of the bottom's channels to its first channel there."""
        return {}

    def slopes_of(self, channels: int) -> Array | None:
        """Return the slope of each channel, (C,) float64, if it only multiplies negative numbers by it; else None."""
        return None

    def affine(self) -> tuple[Array, Array] | None:
        """Return factor and addend per channel, (C,) float64, if the layer computes only that; else None."""
        return None

    # -- for passes and the quantiser

    can_clamp: ClassVar[bool] = False  # a ReLU after it may become its ``slope`` and ``ceiling``
    can_bend: ClassVar[bool] = False  # a PReLU after it may become its ``slopes``, on an overlay
    merges_formats: ClassVar[bool] = False  # its top combines several bottoms, which should share one format
    per_channel: ClassVar[bool] = False  # on an overlay it runs as a factor and an addend per channel: ``affine``
    weighted: ClassVar[bool] = False  # on an overlay its ``weight_rows`` are multiplied in the array, see ``convolved``
    own_format: ClassVar[bool] = False  # runs on an overlay only in a format of its own, never in one of its neighbours
    computes_scores: ClassVar[bool] = False  # runs on the host if only a Softmax or the caller reads its top
    precision_expected: ClassVar[bool] = False  # needs a format of its own for its results, even without ``blobs``
    indices: ClassVar[bool] = False  # its top holds indices, not values
    never_negative: ClassVar[bool] = False  # whatever its bottoms are
    keeps_sign: ClassVar[bool] = False  # its tops are not negative where its bottoms are not

    @property
    def keeps_format(self) -> bool:
        """Return whether its tops can keep its bottom's format, as their values need no other."""
        return False

    @property
    def same_values(self) -> bool:
        """Return whether its tops only copy values of its bottoms, in the same format."""
        return self.keeps_format or self.merges_formats

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        """Return whether its tops cannot be negative, given for each bottom whether it cannot."""
        kept = self.same_values or self.relays or self.keeps_sign
        return self.never_negative or self.slope == 0 or (kept and all(bottoms))

    @property
    def needs_signed(self) -> bool:
        """Return whether it may read and write codes without knowing their zero points."""
        return False

    @property
    def averages(self) -> bool:
        """Return whether its tops are averages over pixels."""
        return False

    @property
    def error_sensitive(self) -> bool:
        """Return whether the error of its bottom is a poor estimate of the error of its top."""
        return False

    @property
    def convolution(self) -> tuple[Window, int] | None:
        """Return the window and the groups of its weights ``blobs[0]`` (M, C/group, kh, kw) if it is a convolution."""
        return None

    def convolved(self, bottom: Shape) -> tuple[Window, int] | None:
        """Return the window and the groups of the convolution that it is over a bottom of this shape; None if it is none."""
        return self.convolution

    @property
    def weight_rows(self) -> Array:
        """Return its weights with outputs as the first axis."""
        return self.blobs[0]

    def with_rows(self, rows: Array) -> list[Array]:
        """Return its blobs with other ``weight_rows``."""
        return [rows, *self.blobs[1:]]

    @property
    def bias_blob(self) -> int | None:
        """Return the index of the blob that is added to its output; None if there is none."""
        return None

    def bias_change(self, moved: Array) -> Array:
        """Return the change of that blob that shifts the output by ``moved`` (C,)."""
        return moved

    def channels_from(self, bottom: str, shapes: Mapping[str, Shape]) -> int | None:
        """Return the first top channel of a bottom's channels, if scaling one of these scales only its own top channel.

        None if scaling a channel would change another channel or the result.
        """
        return None

    def multiplies_channels(self, bottom: Shape) -> bool:
        """Return whether each channel of its only bottom has separate weights, as ``rescaled`` needs."""
        return False

    def rescaled(self, into: Array | None, out: Array | None) -> list[Array]:
        """Return its blobs for a bottom with channels divided by ``into`` (C,) and a top with channels divided by ``out``."""
        return self.blobs

    @property
    def first_class(self) -> int:
        """Return the label of the first class of its boxes: 1 if label 0 is the background."""
        return 0

    def box_classes(self, *bottoms: Shape) -> int | None:
        """Return the number of classes of its boxes for bottoms of these shapes, without a background; None if it is unknown."""
        return None

    # -- errors

    def failure(self, error: ModelError) -> ModelError:
        """Return ``error`` with this layer's name added."""
        return ModelError(f"layer {self.name!r} ({self.type}): {error.message}", layer=self.name, hint=error.hint)

    def miscounted(self, bottoms: int, tops: int) -> tuple[str, str] | None:
        """Return "bottom" or "top", and how many of them it takes, if one of these counts is wrong; else None."""
        allowed = ("bottom", bottoms, self.bottoms_allowed), ("top", tops, self.tops_allowed)
        for what, number, (least, most) in allowed:
            if number < least or (most is not None and number > most):
                takes = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
                return what, f"takes {takes} {what}{'' if takes == '1' else 's'}, found {number}"
        return None

    def wrong(self, message: str, hint: str | None = None) -> ShapeError:
        """Return a ShapeError that names this layer: ``raise self.wrong(...)``."""
        return ShapeError(f"layer {self.name!r} ({self.type}): {message}", layer=self.name, hint=hint)

    def check_top(self, shape: Shape) -> None:
        """Refuse the shape of a top with negative, overflowing or far too large sizes. Raises ShapeError."""
        if len(shape) > limits().axes:
            raise self.wrong(f"top of {number_of(len(shape), 'axis')}; " + limits().exceeded("axes", len(shape)))
        if min(shape, default=0) < 0:
            raise self.wrong(f"top of shape {show(shape)}: a size is negative")
        if (elements := prod(filter(None, shape))) > limits().blob_elements:  # an empty array has a largest size, too
            raise self.wrong(f"top of shape {show(shape)}: " + limits().exceeded("blob_elements", elements))

    def axis(self, value: int, shape: Shape, *, end: bool = False) -> int:
        """Return ``value`` as a non-negative axis of ``shape`` (up to and including its length if ``end``)."""
        count = len(shape) + (1 if end else 0)
        if not -count <= value < count:
            raise self.wrong(f"axis {value} is outside a blob of {number_of(len(shape), 'axis')} {show(shape)}")
        return value + count if value < 0 else value

    def spatial(self, shape: Shape) -> Shape:
        """Check that ``shape`` is (N, C, H, W), and return it."""
        if len(shape) != 4:
            raise self.wrong(f"expected a 4-axis blob (N, C, H, W), found {show(shape)}")
        return shape
