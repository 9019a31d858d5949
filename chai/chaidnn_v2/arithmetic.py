"""CHaiDNN-v2's arithmetic: its codes of weights and biases, multipliers and shifts, and the reasons for what it cannot do.

Float steps are those of its software, in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, frexp, log2, prod
from typing import ClassVar

from ..blob import Array
from ..errors import ModelError
from ..fixed import NOT_FINITE, Centred, Format, Requantization, largest_magnitudes, round_half_away
from ..tasks import Task, arithmetic
from ..tasks.arithmetic import Lowered
from ..tasks.eltwise import Eltwise
from ..tasks.precision import Precision
from ..tasks.unsupported import Unsupported
from ..tasks.window import POINT, Window
from ..util.lazy_numpy import np
from .host import normalize, softmax
from .pool import ChaidnnPoolLimits
from .registers import Converted, wrapped

SHIFT = 22  # bits that are shifted out of the product in a Xilinx format
BIAS = 22  # bits of a Xilinx bias below an output step: 8 in its table, 14 more when it is added
SHIFTS = 31  # largest shift of a descriptor
FIRST = 4  # channels of a network's first layer, whose kernels may be larger
KERNEL = 8  # rows of the kernels of other layers, at most
DECONVOLUTION = 15  # fraction bits of a Deconvolution's weights and bias in DynamicFixed formats
GROUP = 16  # channels of a group, and its outputs, are multiples of it


# codes of weights (M, C/group, kh, kw), bias (M,) in units of the product, multipliers (M,) and shift
IntegerFilter = tuple[Array, Array, Array, int]


class ChaidnnArithmetic(arithmetic.Arithmetic):
    """Sums saturate at 18 bits, products wrap at 32 bits, and a bias is rounded to whole output steps first."""

    negates = True  # a CReLU's second half, which its convolution writes
    whole_windows = True
    picks = False  # a bias is rounded, and sums end at 18 bits
    in_place_of: ClassVar = {"fold_batchnorm": ("fold_pairs",), "fuse_relu": ("fuse_relu", "fuse_pairs", "join_argmax")}
    on_host: ClassVar = {"Softmax": softmax, "Normalize": normalize}

    @staticmethod
    def packing(format: Format, fed: bool) -> Format:
        return format if fed else Converted(format.scheme, format.bits, format.value)

    @staticmethod
    def one_format(layer: Lowered, scheme: str) -> bool:
        """Return True for sums and negations too, which rescale nothing, and for averages in Xilinx formats.

        A BatchNorm with its Scale is ``tied`` to the convolution after it in DynamicFixed formats; in others it is on the host.
        """
        of_scheme = layer.averages if scheme == "Xilinx" else layer.tied
        return layer.same_values or layer.pointwise or layer.elementwise or of_scheme

    def conv(self, layer: Lowered, weights: Array, bias: Array | None, window: Window, group: int) -> Task:
        source, target = self._read(layer, layer.bottoms[0]), self.formats[layer.tops[0]]
        self._check_window(weights, window, group)
        low, high = self._clamp(layer, source)
        added = _finite_bias(weights, bias)
        codes, steps, multipliers, shift = (xilinx if target.scheme == "Xilinx" else dynamic_fixed)(
            weights, added, source, target, *self.weight_format(weights, layer.precision, layer.tops[0])
        )
        r = Requantization(multipliers.reshape(-1, 1, 1), shift, low, high)
        return self._task("conv", layer, layer.bottoms, codes, steps, window, group, r)

    def weight_format(self, weights: Array, precision: Precision | None, top: str) -> tuple[Format, Array | None]:
        """Return what a Target does, but for weights that were folded: they lost the format that was stated for them."""
        format, thresholds = super().weight_format(weights, precision, top)
        if precision is None or precision.fl_params is not None or format.scheme == "Xilinx":
            return format, thresholds
        largest = float(largest_magnitudes(weights))
        whole = 1 if largest < 1 else 2 if largest == 1 else ceil(log2(largest)) + 1  # bits before the point
        return replace(format, value=format.bits - whole), None

    @staticmethod
    def stated(format: Format, folded: bool) -> Format:
        """Return a threshold without a fraction for a folded layer, at least 1."""
        if not folded or format.scheme != "Xilinx":
            return format
        return replace(format, value=float(max(1, ceil(format.value))))

    def inner_product(self, layer: Lowered, weights: Array, bias: Array | None, window: Window) -> Task:
        raise Unsupported("CHaiDNN computes it on the host, in float32")

    def affine(self, layer: Lowered, factor: Array, addend: Array, centred: Centred | None = None) -> Task:
        """Return a BatchNorm with its Scale: a ReLU is part of it, whether one follows or not."""
        source, target = self._read(layer, layer.bottoms[0]), self.formats[layer.tops[0]]
        if target.scheme == "Xilinx":
            raise Unsupported(
                "CHaiDNN's BatchNorm and Scale have no thresholds; they are folded into a convolution or not used"
            )
        _, high = self._clamp(layer, source)
        mean, g, beta = centred or Centred(np.zeros_like(factor), factor, addend)
        if not (np.isfinite(mean).all() and np.isfinite(g).all() and np.isfinite(beta).all()):
            raise ModelError("a factor or an addend is not a finite number; it has no fixed-point code")
        p = layer.precision
        stated = (None, None) if p is None else (p.scale_gamma_by_std_fl, p.scale_beta_fl)
        of_g, of_beta = (table_fraction(v) if fl is None else fl for v, fl in zip((g, beta), stated))
        shift = int(source.value) + 8 + of_g + 8 - int(target.value)
        left = int(source.value) + 8 + of_g - of_beta
        if not (0 <= shift <= SHIFTS and 0 <= left <= SHIFTS):
            raise Unsupported(f"from {source} to {target} are shifts by {shift} and {left}; CHaiDNN has 0 to {SHIFTS}")
        means, betas = _cut(mean, int(source.value) + 8), _cut(beta, of_beta + 8)
        codes = np.clip(_rounded(g.astype(np.float64) * 2.0 ** (of_g + 8)), -(1 << 15), (1 << 15) - 1)
        bias = wrapped((betas << left) - means * codes, 32)
        r = Requantization((np.abs(codes) << 8).reshape(-1, 1, 1), shift, 0, high)
        signs = np.where(codes < 0, -1, 1).astype(np.int8).reshape(-1, 1, 1, 1)
        return self._task("affine", layer, layer.bottoms, signs, bias, POINT, len(codes), r)

    def pool(self, layer: Lowered, window: Window, out: tuple[int, int], areas: Array | None) -> Task:
        bottom, top = layer.bottoms[0], layer.tops[0]
        size = self.shapes[bottom][2:]
        whole = tuple(-(-(n + 2 * p - k) // s) + 1 for n, k, s, p in zip(size, *window[:3]))
        if whole != out:
            text = "x".join(map(str, whole)), "x".join(map(str, out))
            raise Unsupported(f"CHaiDNN would give {text[0]} where this layer gives {text[1]}: it rounds sizes up")
        if areas is None:
            limits = self.overlay.limits("pool", ChaidnnPoolLimits)
            standalone = limits is not None and limits.standalone
            return self._task("pool", layer, layer.bottoms, window, out, None, standalone=standalone)
        area = prod(window.kernel)
        if (areas != area).any() and areas[0, 0] != area:
            raise Unsupported("CHaiDNN's averages count the padding")
        source = self._read(layer, bottom)
        multiplier, shift = np.array(65536 // area), 16
        if source.scheme != "Xilinx":
            multiplier = wrapped(np.array(256 // area), 8)  # 0 for a window of one pixel
            shift = int(source.value) + 8 - int(self.formats[top].value)
        if not 0 <= shift <= SHIFTS:
            raise Unsupported(f"from {source} to {self.formats[top]} is a shift by {shift}; CHaiDNN has 0 to {SHIFTS}")
        return self._task("pool", layer, layer.bottoms, window, out, Requantization(multiplier, shift, -128, 127))

    def eltwise(self, layer: Lowered, coefficients: Sequence[float]) -> Task:
        """Return the sum of codes: whatever the steps of its inputs are, nothing is rescaled."""
        if {*coefficients} != {1.0}:
            raise Unsupported("CHaiDNN adds without coefficients")
        low, high = self._clamp(layer, self._read(layer, layer.bottoms[0]))
        ones, r = (1,) * len(layer.bottoms), Requantization(np.array(1), 0, low, high)
        return Eltwise(layer.bottoms, layer.tops[0], layer.origin, ones, None, r, (0,) * len(ones))

    def pair(self, layer: Lowered, operation: str) -> Task:
        """Raise Unsupported: sums of other layers have the steps of their blobs, which CHaiDNN's Eltwise does not rescale."""
        raise Unsupported("CHaiDNN adds blobs in an Eltwise alone")

    def negation(self, layer: Lowered) -> Task:
        """Return the codes with the other sign, saturated: a CReLU negates before it saturates, which gives the same."""
        r = Requantization(np.array(-1), 0, *self._clamp(layer, self._read(layer, layer.bottoms[0])))
        return self._task("copy", layer, layer.bottoms, 0, r)

    def best_class(
        self, layer: Lowered, weights: Array, bias: Array | None, window: Window, offset: tuple[int, int]
    ) -> Task:
        """Return the Task with the first class's kernel for all of them.

        DynamicFixed: weights and bias have 15 fraction bits and wrap, whatever formats are stated. Xilinx: weights as those
        of a convolution, a bias in steps of the stated output, though sums have those of input and weights.
        """
        added, kernel = _finite_bias(weights, bias), weights[:1]
        stated, top = layer.precision, layer.tops[0]
        source = self._format(layer, "in", layer.bottoms[0])
        if source.scheme == "DynamicFixed":
            codes, steps = _cut(kernel, DECONVOLUTION), _cut(added, DECONVOLUTION)
        else:
            target = self._format(layer, "out", top)
            bits = source.bits if stated is None or not stated.bw_params else stated.bw_params
            thresholds = None if stated is None or not stated.th_params else np.array(stated.th_params[:1], np.float32)
            codes, steps = stepped(kernel, Format("Xilinx", bits, 0.0), thresholds)[0], _steps_of(added, target)
        parts = codes.reshape(window.kernel).astype(np.int16), steps.astype(np.int16)
        return self._task("argmax", layer, layer.bottoms[:1], *parts, window.stride[0], offset, self.shapes[top][2:])

    def copy(self, layer: Lowered, bottom: str, first: int) -> Task:
        """Return what moves codes as they are, in whatever format."""
        return self._task("copy", layer, (bottom,), first, None)

    def _read(self, layer: Lowered, bottom: str) -> Format:
        """Return the format in which a layer reads its bottom: its own layer_in, else the bottom's."""
        source, target = self._format(layer, "in", bottom), self.formats[layer.tops[0]]
        if source.unsigned or target.unsigned:
            raise Unsupported("CHaiDNN has no unsigned codes")
        if source.scheme != target.scheme:
            raise Unsupported(f"it reads {source} and writes {target}; CHaiDNN's layers have one scheme")
        if not source.step or not target.step:
            raise Unsupported(f"from {source} to {target}: every value is 0")
        return source

    def _format(self, layer: Lowered, side: str, blob: str) -> Format:
        """Return the format that a layer states for a side, else the blob's."""
        stated = None if layer.precision is None else layer.precision.side(side)
        return self.formats[blob] if stated is None else Format(*stated)

    @staticmethod
    def _clamp(layer: Lowered, source: Format) -> tuple[int, int]:
        """Return the range of a layer's codes: the width is that of its input, whatever its output's is."""
        if layer.ceiling is not None:
            raise Unsupported("CHaiDNN has no ReLU with an upper limit")
        if layer.slope or layer.slopes is not None:
            raise Unsupported("CHaiDNN has no leaky ReLU")
        low, high = Format("DynamicFixed", source.bits, 0).range
        return (low if layer.slope is None else 0), high

    @staticmethod
    def _check_window(weights: Array, window: Window, group: int) -> None:
        m, channels, *_ = weights.shape
        if any(h != w for h, w in window):
            raise Unsupported("CHaiDNN's windows, strides, paddings and dilations are the same in both directions")
        if max(window.kernel) > KERNEL and channels > FIRST:
            raise Unsupported(f"a kernel above {KERNEL}x{KERNEL} with more than {FIRST} input channels")
        if group > 1 and (channels % GROUP or m // group % GROUP):
            raise Unsupported(f"groups of {channels} inputs and {m // group} outputs are not multiples of {GROUP}")


OWN = ChaidnnArithmetic


def _finite_bias(weights: Array, bias: Array | None) -> Array:
    """Return the bias (M,), zeros if there is none. Raises ModelError unless weights and bias are finite."""
    added = np.zeros(len(weights), np.float32) if bias is None else bias
    if not (np.isfinite(weights).all() and np.isfinite(added).all()):
        raise ModelError(NOT_FINITE)
    return added


def xilinx(
    weights: Array, bias: Array, source: Format, target: Format, format: Format, thresholds: Array | None
) -> IntegerFilter:
    """Return a filter in Xilinx formats; ``thresholds`` (M,) are those of weights, None for their largest magnitudes."""
    codes, steps = stepped(weights, format, thresholds)
    read, written = np.float32(source.step), np.float32(target.step)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        ratios = steps * read / written * np.float32(1 << SHIFT)
    if not (ratios < 1 << 24).all():
        raise Unsupported(f"its output steps ({target}) are too fine: a multiplier would be 4 or more")
    return codes, _steps_of(bias, target) << BIAS, _rounded(ratios), SHIFT


def stepped(weights: Array, format: Format, thresholds: Array | None) -> tuple[Array, Array]:
    """Return the codes of weights (M, ...) int8 in a Xilinx format, and their steps (M,) float32."""
    if thresholds is None:
        thresholds = largest_magnitudes(weights, tuple(range(1, weights.ndim)))
    elif len(thresholds) not in (1, len(weights)):
        raise Unsupported(f"{len(thresholds)} th_params for {len(weights)} output channels")
    each = np.broadcast_to(thresholds.astype(np.float32), len(weights))
    steps = (each.astype(np.float64) / format.largest).astype(np.float32)
    limit, step = each.reshape(-1, 1, 1, 1), np.where(steps == 0, np.float32(1), steps).reshape(-1, 1, 1, 1)
    return _rounded(np.clip(weights, -limit, limit) / step).astype(np.int8), steps


def _steps_of(values: Array, format: Format) -> Array:
    """Return values in whole steps of a Xilinx format (int64), limited by its threshold."""
    threshold = np.float32(format.value)
    return _rounded(np.clip(values, -threshold, threshold) / np.float32(format.step))


def dynamic_fixed(
    weights: Array, bias: Array, source: Format, target: Format, format: Format, _: Array | None
) -> IntegerFilter:
    """Return a filter in DynamicFixed formats."""
    shift = int(source.value) + int(format.value) - int(target.value)
    if not 1 <= shift <= SHIFTS:
        raise Unsupported(
            f"from {source} with weights in {format} to {target} is a shift by {shift}; CHaiDNN has 1 to {SHIFTS}"
        )
    if min(format.value, source.value + format.value) < 0:
        raise Unsupported(f"weights in {format} for {source}: CHaiDNN shifts weights and bias to the left alone")
    added = wrapped(_trimmed(bias, target) << shift, 16)
    return _trimmed(weights, format).astype(np.int8), added, np.ones(len(weights), np.int64), shift


def table_fraction(values: Array) -> int:
    """Return the fraction length, less 8, of a table of 16 bits in which all values have their place."""
    largest = float(np.abs(values).max(initial=0))
    return 7 - max(frexp(largest)[1], -7) if largest else 7


def _cut(values: Array, fraction: int) -> Array:
    """Return codes of 16 bits (int64) with a fraction length: cut towards zero; those beyond wrap around."""
    return wrapped(np.trunc(values.astype(np.float64) * 2.0**fraction).astype(np.int64), 16)


def _trimmed(values: Array, format: Format) -> Array:
    """Return the nearest codes (int64), saturated."""
    low, high = format.range
    return _rounded(np.clip(values.astype(np.float64) / format.step, low, high))


def _rounded(values: Array) -> Array:
    """Return the nearest integers (int64), ties away from zero."""
    return round_half_away(values.astype(np.float64)).astype(np.int64)
