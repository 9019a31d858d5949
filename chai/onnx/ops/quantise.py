"""QuantizeLinear and DequantizeLinear: the format of a blob, and constants that are stored as codes.

Both change no number of the network in float32: an overlay computes with the codes, the host with the numbers.
"""

from __future__ import annotations

from ...text import number_of
from ...util.lazy_numpy import np
from ..codes import BOUNDS, STORED, CodeSteps, DecodedTensor
from ..constants import FLOATS, Constant, type_name
from ..node import OnnxNode
from ..refusal import Refused
from . import operator

SIX = 2.0**-20  # the largest error of a threshold that means 6


@operator("QuantizeLinear")
def quantize(node: OnnxNode) -> None:
    dtype = node.dtype(2) if node.has(2) else type_name(node.attributes.integer("output_dtype", 0) or 2)
    steps = _steps(node, dtype)
    if node.is_constant(0):
        if dtype not in BOUNDS:
            raise Refused(f"codes of type {dtype}")
        node.draft.define(node.outputs[0], Constant(steps.encode(node.constant(0, "input"))))
        return
    blob = node.input()
    node.same(blob)
    node.draft.steps[node.outputs[0]] = steps  # known even if it is refused: the nodes after it are judged, too
    format = steps.format
    negative = format.unsigned and blob not in node.draft.nonnegative  # saturation at 0 is a ReLU
    if node.inputs[0] in node.draft.decoded:
        copied = node.draft.formats.get(blob, format) != format  # from codes to codes
    else:
        copied = node.draft.encoded_again(blob, format) and not negative  # else the ReLU has the codes
    if copied:
        blob = node.part("Power", blob)
        node.draft.formats[blob] = format.signed if negative else format
        node.same(blob)
    if negative:
        node.result("ReLU", blob, relu6=abs(format.value / 6 - 1) < SIX)
    node.draft.formats[node.draft.blobs[node.outputs[0]]] = format


@operator("DequantizeLinear")
def dequantize(node: OnnxNode) -> None:
    name = node.inputs[0] if node.inputs else ""
    codes = node.draft.constants.get(name)
    own = codes.dtype if codes is not None else "uint8"
    steps = _steps(node, node.dtype(2) if node.has(2) else own)
    if codes is not None:
        if codes.dtype not in STORED or steps.dtype != codes.dtype:
            raise Refused(f"codes of type {codes.dtype} with a zero point of type {steps.dtype}")
        node.draft.define(node.outputs[0], DecodedTensor(codes, steps))
        return
    encoded = node.draft.steps.get(name)
    if encoded is None:
        raise Refused("its input has no codes that a node of the file makes")
    if not node.has(2):
        steps = CodeSteps(encoded.dtype, steps.scale, steps.zero, steps.axis)
    if encoded != steps:
        raise Refused("scale or zero point differ from those of the node that makes its codes")
    node.same(node.input())
    node.draft.decoded.add(node.outputs[0])


def _steps(node: OnnxNode, dtype: str) -> CodeSteps:
    """Return the scale and the zero point of a node, which are constants. Raises Refused for others."""
    if node.attributes.integer("block_size", 0):
        raise Refused("a scale for each block of numbers")
    if node.dtype(1) not in FLOATS:
        raise Refused(f"a scale of type {node.dtype(1)}")
    scale = np.asarray(node.constant(1, "scale"), np.float32)
    zero = node.constant(2, "zero point") if node.has(2) else np.zeros(scale.shape, np.int64)
    if zero.dtype.kind not in "iu" or zero.size not in (1, scale.size) or scale.ndim > 1 or not scale.size:
        raise Refused(f"scales of shape {list(scale.shape)} with zero points {zero.dtype} of shape {list(zero.shape)}")
    if not (np.isfinite(scale).all() and scale.min() > 0 and scale.max() < 1e27):
        raise Refused("a scale that is not above 0 and finite")
    rank, axis = len(node.shape()), None
    if scale.size > 1:
        axis = node.axis(node.attributes.integer("axis", 1), rank)
        if node.shape()[axis] != scale.size:
            raise Refused(f"{number_of(scale.size, 'scale')} for an axis of {node.shape()[axis]}")
    zeros = np.broadcast_to(zero.reshape(-1), scale.reshape(-1).shape).astype(np.int64)
    return CodeSteps(dtype, scale.reshape(-1), zeros, axis)
