"""Choose the fixed-point format of each blob on an overlay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ModelError
from ..fixed import SCHEMES, SINGLE, Format
from ..graph import Graph, Layer
from ..overlay import Overlay
from ..tasks.arithmetic import Arithmetic
from ..tasks.precision import Precision
from ..util.lazy_numpy import np
from ..util.log import logger
from ..util.union_find import UnionFind

if TYPE_CHECKING:
    from .plan import Plan

log = logger("chai.formats")
DEFAULT = Precision(bw_layer_in=6, bw_layer_out=6, fl_layer_in=3, fl_layer_out=3, th_layer_in=16.0, th_layer_out=16.0)


def single(layer: Layer) -> bool:
    """Return whether a layer's precision_param asks for float32 on the host."""
    return layer.precision is not None and layer.precision.quant_type == SINGLE


def unsigned_blobs(graph: Graph, overlay: Overlay, host: Collection[str] = ()) -> frozenset[str]:
    """Return the blobs that can have unsigned codes: those that cannot be negative, whatever the images.

    Blobs that share a format are unsigned only if all are. Layers in ``host`` run on the host: their blobs share none. A
    custom layer that works on codes without their zero points keeps its blobs signed.
    """
    if not overlay.unsigned:
        return frozenset()
    signed, nonnegative = set(graph.inputs), set[str]()
    for layer in graph.layers:
        if not layer.source and layer.nonnegative([bottom in nonnegative for bottom in layer.bottoms]):
            nonnegative.update(layer.tops)
        else:
            signed.update(layer.tops)
        if layer.needs_signed:
            signed.update((*layer.bottoms, *layer.tops))
    shared = _shared(graph, host, lambda layer: layer.same_values)
    groups = {shared[blob] for blob in signed if blob in shared}
    return frozenset(blob for blob in nonnegative if shared[blob] not in groups)


def calibrated(
    graph: Graph,
    ranges: Mapping[str, float],
    bits: int,
    scheme: str,
    host: Collection[str] = (),
    unsigned: Collection[str] = (),
    one_format: Callable[[Layer, str], bool] = Arithmetic.one_format,
) -> dict[str, Format]:
    """Return the formats of all blobs from ``ranges``, the largest magnitude measured in each.

    A concat and its bottoms share one range, so that the bottoms can be written into it without rescaling; a max pool
    and a slice have their input's. Layers in ``host`` run on the host: their blobs share no format. Blobs in ``unsigned``
    have unsigned codes. ``one_format`` is the overlay's arithmetic's.
    """
    if scheme not in SCHEMES:
        raise ModelError(f"scheme {scheme!r}: expected one of {', '.join(SCHEMES)}")
    for layer in graph.layers:
        for top in layer.tops:
            if not np.isfinite(ranges.get(top, 0.0)):
                what = f"blob {graph.caffe_name(top)!r} has values that are not finite on the calibration images"
                raise layer.failure(ModelError(what))
    shared = _shared(graph, host, lambda layer: one_format(layer, scheme))
    groups: dict[str, float] = {}
    for blob, value in ranges.items():
        group = shared.get(blob, blob)
        groups[group] = max(groups.get(group, 0.0), value)
    formats = {blob: covering(groups[shared.get(blob, blob)], bits, scheme, blob in unsigned) for blob in ranges}
    indices = {top for layer in graph.layers if layer.indices for top in layer.tops}
    return {blob: of_indices(scheme) if blob in indices else format for blob, format in formats.items()}


def of_indices(scheme: str) -> Format:
    """Return the format of a blob of indices, whose step is 1."""
    return Format(scheme, 8, 127.0 if scheme == "Xilinx" else 0)


def covering(largest: float, bits: int, scheme: str, unsigned: bool = False) -> Format:
    """Return the finest format in which magnitudes up to ``largest`` saturate by at most one code."""
    if scheme == "Xilinx":
        value = float(np.float32(largest)) or 1.0  # a blob of zeros: any threshold will do
        return Format(scheme, bits, value, unsigned)
    integer = int(np.ceil(np.log2(largest))) if largest > 0 else 0
    magnitude = bits if unsigned else bits - 1  # bits without the sign
    return Format(scheme, bits, magnitude - integer, unsigned)


def _shared(graph: Graph, host: Collection[str], joins: Callable[[Layer], bool]) -> dict[str, str]:
    """Return a representative for each blob: blobs with one format share it. Layers on the host join no blobs."""
    shared = UnionFind()
    for layer in graph.layers:
        if layer.name not in host and joins(layer):
            for blob in (*layer.bottoms, *layer.tops):
                shared.join(blob, layer.tops[0])
    return {blob: shared.root(blob) for layer in graph.layers for blob in (*layer.bottoms, *layer.tops)}


def has_formats(graph: Graph) -> bool:
    """Return whether the network has formats: a precision_param on a layer that an overlay computes.

    Widths alone are none, as in the quantization_param of Intel's Caffe, which has scales in place of fraction lengths.
    """
    stated = (layer.precision for layer in graph.layers if layer.precision is not None and layer.engine != "custom")
    return any(replace(p, bw_layer_in=None, bw_layer_out=None, bw_params=None) != Precision() for p in stated)


def from_precision(graph: Graph, unsigned: Collection[str] = ()) -> dict[str, Format]:
    """Return the formats of all blobs from the layers' precision_param.

    A blob's format is its producer's layer_out; an input without one takes the layer_in of the first reader that has one. A
    missing format is taken from the producer of the bottom, else CHaiDNN's default (6 bits, fl 3, th 16) is used with one
    warning. A blob that is not in ``unsigned`` has the signed format with the same range.
    """
    formats: dict[str, Format] = {}
    missing: list[str] = []
    for layer in graph.layers:
        read = _precision(layer, "out" if layer.source else "in")
        if read is not None:
            blobs = layer.tops if layer.source else layer.bottoms
            formats.update({b: read.signed for b in blobs if b in graph.inputs and b not in formats})
    for layer in graph.layers:
        if layer.source:
            continue
        for bottom in layer.bottoms:
            if bottom not in formats:
                formats[bottom] = (_precision(layer, "in") or _precision_default(layer, "in", missing)).signed
        inherited = formats[layer.bottoms[0]] if layer.bottoms else None
        for top in layer.tops:
            own = None if layer.same_values and not single(layer) else _precision(layer, "out")
            if layer.merges_formats and own is None:
                own = max((formats[b] for b in layer.bottoms), key=lambda f: f.step)
            if layer.indices and inherited is not None:
                own = of_indices(inherited.scheme)
            format = own or inherited or _precision_default(layer, "out", missing)
            formats[top] = format if top in unsigned else format.signed
            expected = (layer.blobs or layer.precision_expected) and not layer.keeps_format
            if own is None and expected and not single(layer):
                missing.append(layer.name)
    if missing:
        names = list(dict.fromkeys(missing))
        log.warning(
            "no complete precision_param: %s; taken from the layer before, or CHaiDNN's default", ", ".join(names)
        )
    return formats


def brought(plan: Plan) -> dict[str, Format] | None:
    """Return the formats of all blobs of a Plan's network that it brings; None if it brings none."""
    if not has_formats(plan.graph):
        for layer in plan.graph.layers:
            _precision(layer, "out")  # refuses widths that no format has
        return None
    return from_precision(plan.graph, unsigned_blobs(plan.graph, plan.overlay, plan.partition.reasons))


def _precision(layer: Layer, side: str) -> Format | None:
    p = layer.precision
    if p is None:
        return None
    for scheme in (p.quant_type, p.quant_type_out):
        if scheme not in (None, *SCHEMES, SINGLE):
            problem = f"quant_type {scheme!r}; expected {', '.join(SCHEMES)} or {SINGLE}"
            raise layer.failure(ModelError(f"precision_param: {problem}"))
    if any(bits not in (None, 6, 8) for bits in (p.bw_layer_in, p.bw_layer_out, p.bw_params)):
        problem = f"{p.bw_layer_in}, {p.bw_layer_out} and {p.bw_params} bits; expected 8 or 6"
        raise layer.failure(ModelError(f"precision_param: {problem}"))
    width_and_value = p.side(side)
    return None if width_and_value is None else Format(*width_and_value)


def _precision_default(layer: Layer, side: str, missing: list[str]) -> Format:
    if not single(layer):
        missing.append(layer.name)
    scheme = layer.precision.quant_type if layer.precision is not None and not single(layer) else "DynamicFixed"
    value = getattr(DEFAULT, f"{'th' if scheme == 'Xilinx' else 'fl'}_layer_{side}")
    return Format(scheme, getattr(DEFAULT, f"bw_layer_{side}"), value)
