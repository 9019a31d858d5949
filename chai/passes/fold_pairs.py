"""fold_pairs: fold a BatchNorm and the Scale after it as CHaiDNN-v2 does, in float32: S = gamma / sqrt(variance + eps).

After a convolution w' = S w, b' = S (b - mean) + beta, in the Scale's format. Elsewhere both become one layer. A
BatchNorm or Scale alone stays as it is.
"""

from __future__ import annotations

from dataclasses import replace

from ..fixed import Centred
from ..graph import Graph, Layer
from ..layers.batch_norm import BN, BatchNorm
from ..layers.convolution import Convolution
from ..layers.scale import Scale
from ..tasks.precision import Precision
from ..util.lazy_numpy import np
from ._edit import joined, merged


def fold_pairs(graph: Graph) -> Graph:
    """Return the graph without the pairs of a BatchNorm and a Scale."""
    return joined(joined(graph, _paired), _folded)


def _paired(first: Layer, second: Layer) -> BN | None:
    if not isinstance(first, BatchNorm) or first.scaled or not isinstance(second, Scale) or second.params.axis < 0:
        return None  # axis -3 are the channels of four axes alone
    return None if first.affine() is None or second.affine() is None else _pair(first, second)


def centred_pair(first: Layer, second: Layer) -> Centred | None:
    """Return what two layers compute together, as CHaiDNN's tables have it; None if they are not a BatchNorm and a Scale."""
    if not isinstance(first, BatchNorm) or first.scaled or not isinstance(second, Scale):
        return None
    return _pair(first, second).centred()


def _pair(first: BatchNorm, second: Scale) -> BN:
    """Return both as one layer, whose blobs are slope, bias, mean and variance."""
    mean, variance = first.quotients()
    slope = second.blobs[0].reshape(-1)
    bias = second.blobs[1].reshape(-1) if second.params.bias_term else np.zeros_like(slope)
    blobs = [array.reshape(1, -1, 1, 1) for array in (slope, bias, mean, variance)]
    joined = merged(first, second)
    pair = BN(second.name, first.bottoms, second.tops, BN.Params(eps=first.params.eps, frozen=True), blobs)
    pair.origin, pair.precision, pair.place = joined.origin, joined.precision, second.place
    stated = second.precision
    if pair.precision is not None and stated is not None and stated.scale_gamma_by_std_fl is not None:
        pair.precision = replace(
            pair.precision,
            scale_gamma_by_std_fl=stated.scale_gamma_by_std_fl,
            scale_beta_fl=stated.scale_beta_fl,
        )
    return pair


def _folded(conv: Layer, pair: Layer) -> Layer | None:
    """Return a convolution that computes the pair, too; None for other layers, and for a BN that was none."""
    if not isinstance(conv, Convolution) or conv.slope is not None:
        return None
    if not isinstance(pair, BN) or len(pair.origin) < 2:
        return None
    layer = merged(conv, pair)
    mean, factor, addend = pair.centred()
    weights = conv.blobs[0] * factor.reshape(-1, 1, 1, 1)
    bias = conv.blobs[1] if conv.params.bias_term else np.zeros_like(mean)
    layer.params = replace(conv.params, bias_term=True)
    layer.blobs = [weights, factor * (bias - mean) + addend]
    if layer.precision is not None:
        layer.precision = _precision(layer.precision)
    return layer


def _precision(before: Precision) -> Precision:
    """Return the precision_param of a folded convolution: its weights get a new format, the output's threshold is cut."""
    threshold = None if before.th_layer_out is None else float(int(before.th_layer_out))
    return replace(before, fl_params=None, th_params=(), th_layer_out=threshold)
