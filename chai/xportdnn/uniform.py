"""One DynamicFixed format for every layer, as XportDNN writes it. Uses no images and changes no weights."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..graph import Layer
from ..quantizer.writeback import check_form, write_prototxt
from ..tasks.precision import Precision
from ..zoo.locate import locate, read_graph

Three = tuple[int, int, int]


def write_uniform(prototxt: str | Path, caffemodel: str | Path, output: Path, bits: Three, fractions: Three) -> Path:
    """Write the prototxt to ``output`` with these widths and fraction lengths (input, weights, output) in every layer.

    Returns the path of the caffemodel that belongs to it. Raises UsageError and what reading the prototxt raises.
    """
    path, weights = locate(prototxt, caffemodel)
    assert weights is not None  # it was named
    check_form(path)
    if output.exists() and output.samefile(path):
        raise UsageError(f"{str(output)!r} would be written over what it is made from", hint="name another output")
    graph = read_graph(path)
    (bw_in, bw_params, bw_out), (fl_in, fl_params, fl_out) = bits, fractions
    plain = Precision("DynamicFixed", bw_in, bw_out, fl_layer_in=fl_in, fl_layer_out=fl_out)
    weighted = Precision("DynamicFixed", bw_in, bw_out, bw_params, fl_in, fl_out, fl_params)
    computed = [layer for layer in graph.layers if _computes(layer)]
    formats = {x.name: weighted if x.convolution is not None else plain for x in computed}
    note = f"DynamicFixed, widths {bits}, fractions {fractions} of input, weights and output"
    write_prototxt(output, graph, formats, weights, note)
    return weights


def _computes(layer: Layer) -> bool:
    """Return whether an overlay computes new codes for this layer; Concat and Slice only pass codes on."""
    only_parts = type(layer).parts is not Layer.parts
    return type(layer).lower is not Layer.lower and not layer.merges_formats and not only_parts
