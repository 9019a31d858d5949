"""fuse_pairs: give a BatchNorm with its Scale and the convolution after it the formats that one operation of CHaiDNN-v2 has.

It computes both one after the other, but has a single layer_in, the BatchNorm's, and a single layer_out, the convolution's:
the pair writes codes of the latter, and the convolution reads them as if they were of the former.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from ..graph import Graph, Layer
from ..layers.batch_norm import BN
from ..layers.convolution import Convolution
from ..layers.power import Power
from ..tasks.precision import Precision

GROUPS = 2  # of a convolution; more are CHaiDNN's depthwise ones


def fuse_pairs(graph: Graph) -> Graph:
    """Return the graph with the formats of such layers, which are ``tied`` to one where formats are chosen.

    A convolution that has a format of the pair's is on the overlay only if the pair is. One whose top a Power reads is a
    CReLU, which stays apart.
    """
    fused: dict[str, Layer] = {}
    for pair in graph.layers:
        if not isinstance(pair, BN) or len(pair.origin) < 2:
            continue
        conv = graph.only_reader(pair.tops[0])
        if not isinstance(conv, Convolution) or conv.params.group > GROUPS or len(conv.tops) != 1:
            continue
        if any(isinstance(reader, Power) for reader in graph.readers[conv.tops[0]]):
            continue
        first, second = copy(pair), copy(conv)
        first.tied = second.tied = True
        first.precision, second.precision = _shared(pair.precision, conv.precision)
        second.follows = second.precision is not conv.precision
        fused |= {first.name: first, second.name: second}
    return replace(graph, layers=[fused.get(layer.name, layer) for layer in graph.layers])


def _shared(first: Precision | None, second: Precision | None) -> tuple[Precision | None, Precision | None]:
    """Return the precision_params of both, each with what the other states; unchanged unless both are DynamicFixed."""
    if first is None or second is None or "Xilinx" in (first.quant_type, second.quant_type):
        return first, second
    return (
        replace(first, bw_layer_out=second.bw_layer_out, fl_layer_out=second.fl_layer_out),
        replace(second, bw_layer_in=first.bw_layer_in, fl_layer_in=first.fl_layer_in),
    )
