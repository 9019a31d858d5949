"""Arithmetic: the Tasks that layers become on an overlay, for the arithmetic that its manifest names.

How to add one: a folder ``chai/NAME`` whose ``arithmetic.py`` has in ``OWN`` a class derived from Arithmetic, files with its
kinds of Task as in ``chai/tasks``, and manifests with ``"arithmetic": "NAME"``. It needs no registration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Protocol, cast

from ..blob import Array
from ..errors import ModelError
from ..fixed import Centred, Format, Quantized, Scaled, round_half_away, with_sums
from ..overlay import Overlay
from ..util.lazy_numpy import np
from . import Task, find, package_of
from .coarser import Sums
from .precision import Precision
from .target import Target
from .window import POINT, Window


class Lowered(Protocol):
    """The part of a layer that its Tasks depend on, beside its weights, and its formats; see ``Layer``."""

    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    origin: tuple[str, ...]
    slope: float | None
    ceiling: float | None
    slopes: Array | None
    elementwise: bool
    tied: bool

    @property
    def precision(self) -> Precision | None: ...

    @property
    def same_values(self) -> bool: ...

    @property
    def pointwise(self) -> bool: ...

    @property
    def averages(self) -> bool: ...


class Arithmetic(Target):
    """A Target that makes Tasks: a method for each kind that every arithmetic has, which returns the Task of a layer.

    They raise Unsupported for a layer whose numbers do not fit. Here sums are exact, rounded once and saturated. Those that
    raise NotImplementedError are of Tasks that other arithmetics alone have: their own passes or ``negates`` lead to them.

    ``negates`` says whether it has a negation of codes, without a table of them: the method ``negation``.
    ``picks`` says whether a convolution with a single 1 writes the code that it reads, in whatever format: the method ``pick``.
    ``whole_windows`` says whether a pooling has windows that begin in the padding after the image, which Caffe drops.
    ``in_place_of`` has the passes of its own: for one of ``passes.rewrite.PIPELINE`` the names of those that run in its place.
    ``on_host`` has the functions that the host computes in place of Caffe's, by layer type: for a Softmax one of an array and
    an axis, float32; for a Normalize over channels one of codes, scale (C,) or (1,), and the formats of bottom and top.
    """

    negates: ClassVar[bool] = False
    picks: ClassVar[bool] = True
    whole_windows: ClassVar[bool] = False
    in_place_of: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    on_host: ClassVar[Mapping[str, Callable[..., Array]]] = {}

    @staticmethod
    def packing(format: Format, fed: bool) -> Format:
        """Return a blob's format as a Pack converts to it: how float values become codes; ``fed`` is for a network's input."""
        del fed
        return format

    @staticmethod
    def one_format(layer: Lowered, scheme: str) -> bool:
        """Return whether the bottoms and tops of a layer on the overlay need one format, where formats are chosen."""
        del scheme
        return layer.same_values

    @staticmethod
    def stated(format: Format, folded: bool) -> Format:
        """Return the format that a file can state for blobs, of which a layer with others ``folded`` into it writes one."""
        del folded
        return format

    def kind(self, name: str) -> Any:
        """Return the class of a kind of Task in this arithmetic."""
        return find(name, self.overlay.arithmetic)

    def conv(self, layer: Lowered, weights: Array, bias: Array | None, window: Window, group: int) -> Task:
        """Return a convolution with weights (M, C/group, kh, kw) and bias (M,), float32."""
        bottom, top = layer.bottoms[0], layer.tops[0]
        return self._filter("conv", layer, self.weights(weights, bias, layer.precision, bottom, top), (window, group))

    def inner_product(self, layer: Lowered, weights: Array, bias: Array | None, window: Window) -> Task:
        """Return an inner product as a convolution whose window has one position."""
        return self.conv(layer, weights, bias, window, 1)

    def affine(self, layer: Lowered, factor: Array, addend: Array, centred: Centred | None = None) -> Task:
        """Return one factor and one addend per channel, (C,) float64: weights of +-127 with step |factor| / 127.

        ``centred`` is the same with a mean that is subtracted first, for an arithmetic that has a table of means.
        """
        del centred
        if not np.isfinite(factor).all():
            raise ModelError("a factor is not a finite number; it has no fixed-point code")
        bottom, top = layer.bottoms[0], layer.tops[0]
        largest = np.abs(factor).max(initial=0)
        # no channel's step is below 1/256 of the largest, so that multipliers keep at least 8 bits
        source = self.formats[bottom]
        steps = np.maximum(np.abs(factor) / 127, largest / 127 / 256) if largest else np.full(len(factor), source.step)

        def quantize(weights: Array, steps: Array, _: int) -> Quantized:
            return with_sums(weights, round_half_away(weights / steps.reshape(-1, 1, 1, 1)).astype(np.int8), steps)

        scaled, format = Scaled(factor.reshape(-1, 1, 1, 1), addend, steps), Format("Xilinx", 8, 0.0)
        return self._filter("affine", layer, self.sums(scaled, format, bottom, top, quantize), (POINT, len(factor)))

    def _filter(self, kind: str, layer: Lowered, sums: Sums, shape: tuple[Window, int]) -> Task:
        """Return a Task of a kind with weights, with these codes, bias and steps of the accumulators, a window and groups."""
        r = self.requantization(sums.steps.reshape(-1, 1, 1), layer.tops[0], layer.slope, layer.ceiling, layer.slopes)
        zero, wide = self.formats[layer.bottoms[0]].zero, self.trained and sums.bound >= self.overlay.accumulator_bound
        return self._task(kind, layer, layer.bottoms, sums.codes, sums.bias, *shape, r, zero, wide=wide)

    def _task(
        self, kind: str, layer: Lowered, bottoms: tuple[str, ...], *parts: Any, top: str = "", **more: Any
    ) -> Task:
        """Return a layer's Task of a kind, which writes its first top or another blob."""
        task: Task = self.kind(kind)(bottoms, top or layer.tops[0], layer.origin, *parts, **more)
        return task

    def pool(self, layer: Lowered, window: Window, out: tuple[int, int], areas: Array | None) -> Task:
        """Return a maximum, or with ``areas`` (OH, OW) the sum of each window divided by its area."""
        source, top = self.formats[layer.bottoms[0]], layer.tops[0]
        r = None if areas is None else self.requantization(source.step / areas.astype(np.float64), top, None)
        return self._task("pool", layer, layer.bottoms, window, out, r, 0 if r is None else source.zero)

    def eltwise(self, layer: Lowered, coefficients: Sequence[float]) -> Task:
        """Return a sum of blobs, each with its coefficient."""
        return self._of_blobs(layer, layer.bottoms, "SUM", coefficients)

    def pair(self, layer: Lowered, operation: str) -> Task:
        """Return an operation of two blobs, of which one may have one pixel: it is then the second."""
        first, second = layer.bottoms
        if self.shapes[first][2:] == (1, 1) != self.shapes[second][2:]:
            first, second = second, first
        return self._of_blobs(layer, (first, second), operation, ())

    def _of_blobs(self, layer: Lowered, bottoms: tuple[str, ...], operation: str, factors: Sequence[float]) -> Task:
        common = layer.tops[0], layer.origin, operation, self, factors, layer.slope, layer.ceiling
        task: Task = self.kind("eltwise").of_blobs(bottoms, *common)
        return task

    def upsample(self, layer: Lowered, top: str, factors: tuple[int, int], spread: bool = False) -> Task:
        """Return the Task that copies each pixel of the bottom into a rectangle, or with ``spread`` puts zeros around it."""
        bottom, source = layer.bottoms[0], self.formats[layer.bottoms[0]]
        alike = source == self.formats[top]
        r = None if alike else self.requantization(np.array(source.step), top, None)
        zero = source.zero if spread or not alike else 0
        return self._task("upsample", layer, (bottom,), factors, spread, r, zero, top=top)

    def interleave(self, layer: Lowered, bottom: str, top: str, rows: int, apart: int) -> Task:
        """Return the Task that interleaves the pixels of a bottom's parts, ``apart`` channels apart, as rows and columns."""
        return self._task("interleave", layer, (bottom,), rows, apart, top=top)

    def pick(self, layer: Lowered, bottom: str, top: str, taps: Array, window: Window, group: int) -> Task:
        """Return a convolution that copies one code of the bottom to each code of the top, or 0 where that lies in the padding.

        ``taps`` int8 (M, C/group, kh, kw) has a single 1 for each output channel. Codes change only if the formats differ.
        """
        source = self.formats[bottom]
        r = self.requantization(np.full((len(taps), 1, 1), source.step), top, None)
        bias = np.full(len(taps), -source.zero, np.int64)
        parts = taps, bias, window, group, r, source.zero
        return self._task("conv", layer, (bottom,), *parts, top=top, zero_weights=taps.size)

    def negation(self, layer: Lowered) -> Task:
        """Return the Task that changes the sign of each code; only an arithmetic that ``negates`` has it."""
        raise NotImplementedError(self.overlay.arithmetic)

    def best_class(
        self, layer: Lowered, weights: Array, bias: Array | None, window: Window, offset: tuple[int, int]
    ) -> Task:
        """Return one Task for a Deconvolution and an ArgMax over its classes; only an arithmetic with ``join_argmax`` has it.

        ``weights`` (C, 1, kh, kw) and ``bias`` (C,), float32; ``offset`` is the first row and column that is written.
        """
        raise NotImplementedError(self.overlay.arithmetic)

    def copy(self, layer: Lowered, bottom: str, first: int) -> Task:
        """Return the Task that copies a bottom into the channels of the top from ``first``, rescaled if their formats differ."""
        source, top = self.formats[bottom], layer.tops[0]
        alike = source == self.formats[top]
        r = None if alike else self.requantization(np.array(source.step), top, None)
        return self._task("copy", layer, (bottom,), first, r, 0 if alike else source.zero)


def arithmetic(overlay: Overlay) -> type[Arithmetic]:
    """Return the arithmetic that an overlay's manifest names."""
    return cast("type[Arithmetic]", import_module(f"{package_of(overlay.arithmetic)}.arithmetic").OWN)


OWN = Arithmetic  # what the module of each arithmetic has
