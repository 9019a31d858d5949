"""Codes of quantised files: what QuantizeLinear and DequantizeLinear say of them, as constants and as formats of layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..blob import Array
from ..fixed import SINGLE, Format
from ..graph import Graph, Layer
from ..tasks.precision import Precision
from ..util.lazy_numpy import np
from .constants import Constant
from .refusal import Refused

BOUNDS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
STORED = (*BOUNDS, "int32")  # types of constants
# zero points of codes of both signs; 127 is that of onnxruntime 1.23, whose symmetric uint8 end at 254
MIDDLES = {"uint8": (128, 127), "int8": (0,)}
_COPIES = {"BatchReindex", "Crop", "Permute", "Reshape", "ShuffleChannel", "Tile"}
_SYMMETRIC = 'quantise with extra_options={"ActivationSymmetric": True, "WeightSymmetric": True} of onnxruntime'


@dataclass(frozen=True, eq=False)
class CodeSteps:
    """The values of codes: value = (code - zero) * scale.

    ``scale``   float32 (n,), one number or one for each index of ``axis``
    ``zero``    zero points, int64 (n,)
    """

    dtype: str
    scale: Array
    zero: Array
    axis: int | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CodeSteps) or self.dtype != other.dtype:
            return False
        return np.array_equal(self.scale, other.scale) and np.array_equal(self.zero, other.zero)

    def along(self, array: Array, rank: int) -> Array:
        """Return numbers of ``scale`` or ``zero`` in a shape that broadcasts over codes of so many axes."""
        if self.axis is None:
            return array.reshape(())
        return array.reshape([-1 if axis == self.axis else 1 for axis in range(rank)])

    @property
    def format(self) -> Format:
        """Return the same steps as a format of chai. Raises Refused if there is none."""
        if self.dtype not in ("uint8", "int8"):
            raise Refused(f"codes of type {self.dtype}; formats have 8 bits, uint8 or int8")
        if self.axis is not None:
            raise Refused("a scale for each channel of a blob; a format has one")
        zero, low, middles = int(self.zero[0]), BOUNDS[self.dtype][0], MIDDLES[self.dtype]
        if zero not in (low, *middles):
            what = f"its zero point is {zero}; formats have {middles[0]} (both signs) or {low} (none below 0)"
            raise Refused(what, hint=_SYMMETRIC)
        unsigned = zero == low
        threshold = np.float32(self.scale[0]) * np.float32(255 if unsigned else 127)
        return Format("Xilinx", 8, float(threshold), unsigned)

    def encode(self, values: Array) -> Array:
        """Return the codes of numbers, rounded half to even and saturated."""
        low, high = BOUNDS[self.dtype]
        steps = np.rint(values.astype(np.float32) / self.along(self.scale, values.ndim))
        codes: Array = np.clip(steps + self.along(self.zero, values.ndim), low, high).astype(self.dtype)
        return codes


class DecodedTensor(Constant):
    """A constant of codes, whose numbers are computed when they are asked for."""

    def __init__(self, codes: Constant, steps: CodeSteps) -> None:
        self.shape, self.dtype = codes.shape, "float32"
        self._codes, self._steps = codes, steps

    def array(self) -> Array:
        steps, codes = self._steps, self._codes.array()
        # codes of up to 16 bits, and their differences from a zero point, are float32 exactly
        values: Array = codes.astype(np.float32 if codes.dtype.itemsize < 4 else np.float64)
        values -= steps.along(steps.zero, values.ndim).astype(values.dtype)
        values *= steps.along(steps.scale, values.ndim)
        return values.astype(np.float32, copy=False)

    @property
    def thresholds(self) -> Constant:
        """Return for each number the threshold of its step. Raises Refused for codes that weights cannot have."""
        steps = self._steps
        if steps.dtype not in ("uint8", "int8"):
            raise Refused(f"its weights have codes of type {steps.dtype}; weights have 8 bits, uint8 or int8")
        middles = MIDDLES[steps.dtype]
        if odd := [zero for zero in steps.zero.tolist() if zero not in middles]:
            raise Refused(f"its weights have zero point {odd[0]}, expected {middles[0]}", hint=_SYMMETRIC)
        if 127 in steps.zero and self._codes.array().max(initial=0) > 254:
            what = "its weights have the code 255 beside the zero point 127, expected at most 254"
            raise Refused(what, hint=_SYMMETRIC)
        each = steps.along(steps.scale * np.float32(127), len(self.shape))
        return Constant(np.broadcast_to(each, self.shape))


def assign(graph: Graph, encoded: Mapping[str, Format], thresholds: Mapping[str, tuple[float, ...]]) -> None:
    """Give each layer its format; one that reads or writes a blob without codes runs in float32 on the host.

    ``encoded``     formats of the blobs that the file has as codes
    ``thresholds``  by layer, of its weights

    A prototxt gives them by precision_param.
    """
    formats = _spread(graph, encoded)
    for layer in graph.layers:
        if layer.source and layer.tops[0] in encoded:
            layer.precision = _single(encoded[layer.tops[0]])
        if layer.source or not layer.bottoms or not layer.tops:
            continue
        if all(blob in formats for blob in (*layer.bottoms, *layer.tops)):
            if not layer.merges_formats:
                layer.precision = _precision(graph, layer, formats, thresholds.get(layer.name, ()))
        else:
            stated = [formats[top] for top in layer.tops if top in formats]
            layer.precision = _single(max(stated, key=lambda each: each.value, default=None))


def _precision(graph: Graph, layer: Layer, formats: Mapping[str, Format], thresholds: tuple[float, ...]) -> Precision:
    first = next((blob for blob in layer.bottoms if blob in graph.inputs), layer.bottoms[0])
    source, target = formats[first], formats[layer.tops[0]]
    return Precision(
        target.scheme,
        source.bits,
        target.bits,
        target.bits if layer.weighted else None,
        th_layer_in=source.value,
        th_layer_out=target.value,
        th_params=thresholds,
        chai_unsigned_in=source.unsigned,
        chai_unsigned_out=target.unsigned,
    )


def _single(target: Format | None) -> Precision:
    """Return that a layer runs in float32, and the format in which others read its top, if there is one."""
    if target is None:
        return Precision(SINGLE)
    return Precision(
        SINGLE,
        bw_layer_out=target.bits,
        th_layer_out=target.value,
        chai_unsigned_out=target.unsigned,
        quant_type_out=target.scheme,
    )


def _spread(graph: Graph, encoded: Mapping[str, Format]) -> dict[str, Format]:
    """Return the formats with those of blobs between: copies of others, and sums that a ReLU or factors are folded into."""
    formats = dict(encoded)
    for layer in graph.layers:
        if layer.bottoms and all(blob in formats for blob in layer.bottoms) and _copies(layer):
            own = max((formats[blob] for blob in layer.bottoms), key=lambda each: each.step)
            for top in layer.tops:
                formats.setdefault(top, own)
    readers = Counter(blob for layer in graph.layers for blob in layer.bottoms)
    readers.update(graph.output_blobs)
    for layer in reversed(graph.layers):
        if layer.same_values and len(layer.tops) == 1 and layer.tops[0] in formats:
            own = formats[layer.tops[0]]  # numbers beyond its codes saturate there, if not before
            coarser = {blob for blob in layer.bottoms if blob in formats and formats[blob].step > own.step}
            formats.update({blob: own for blob in coarser if readers[blob] == 1 and blob not in graph.inputs})
        if layer.tops and layer.tops[0] in formats and layer.bottoms and readers[layer.bottoms[0]] == 1:
            before = graph.writers[layer.bottoms[0]]
            folded = (layer.per_channel and (before.convolution or before.per_channel)) or (
                layer.type == "ReLU" and before.can_clamp and 0 <= layer.params.negative_slope <= 1
            )
            if folded:
                formats.setdefault(layer.bottoms[0], formats[layer.tops[0]].signed)
    return formats


def _copies(layer: Layer) -> bool:
    """Return whether no value of a layer's tops is larger than those of its bottoms."""
    if layer.type == "Pad":
        return not layer.params.constant_values
    if layer.type == "ReLU":
        return bool(abs(layer.params.negative_slope) <= 1)
    return layer.same_values or layer.relays or layer.type in _COPIES
