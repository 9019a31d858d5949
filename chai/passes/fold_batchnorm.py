"""fold_batchnorm: fold a BatchNorm, Scale or chain of them after a convolution into its weights and bias."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Layer
from ..layers.batch_norm import AffineLayer
from ..layers.convolution import Convolution
from ..layers.scale import Scale
from ..util.data.malloc import Room
from ..util.lazy_numpy import np
from ._edit import joined, merged


def fold_batchnorm(graph: Graph) -> Graph:
    """Fold factor f and addend a per channel: w' = f w, b' = f b + a. A chain without a convolution becomes one Scale.

    Chains may be in place or not, and may be followed by any layer.
    """
    room = Room(layer.blobs[0].size for layer in graph.layers if isinstance(layer, Convolution) and layer.blobs)
    folds: set[str] = set()  # layers that have weights of their own, which another fold overwrites

    def fold(first: Layer, second: Layer) -> Layer | None:
        folded = (
            _fold(first, second, None if first.name in folds else room) if isinstance(second, AffineLayer) else None
        )
        if folded is not None:
            folds.add(folded.name)
        return folded

    return joined(graph, fold)


def _fold(first: Layer, second: AffineLayer, room: Room | None) -> Layer | None:
    """Return both as one layer, None if that cannot be; its weights are in ``room``, or those of ``first`` overwritten."""
    own = second.affine()
    if own is None or first.slope is not None:
        return None
    factor, addend = own
    layer = merged(first, second)
    if layer.precision is not None:  # the weights have changed: their old format may no longer cover them
        layer.precision = replace(layer.precision, fl_params=None, th_params=())
    if isinstance(first, Convolution):
        weights = first.blobs[0] if room is None else room.take(first.blobs[0].shape)
        # in one pass, without an array of float64
        np.multiply(first.blobs[0], factor.reshape(-1, 1, 1, 1), weights, dtype=np.float64, casting="same_kind")
        bias = first.blobs[1].astype(np.float64) if first.params.bias_term else 0.0
        layer.params = replace(first.params, bias_term=True)
        layer.blobs = [weights, (bias * factor + addend).astype(np.float32)]
        return layer
    before = first.affine() if isinstance(first, AffineLayer) else None
    axes = {getattr(layer.params, "axis", 1) for layer in (first, second)}
    if before is None or axes != {1}:  # of a blob with other axes than four, -3 are not the channels
        return None
    blobs = [(before[0] * factor).astype(np.float32), (before[1] * factor + addend).astype(np.float32)]
    scale = Scale(second.name, first.bottoms, second.tops, Scale.Params(bias_term=True), blobs)
    scale.origin, scale.precision, scale.place = layer.origin, layer.precision, second.place
    return scale
