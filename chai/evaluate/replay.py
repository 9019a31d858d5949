"""Run one layer of a network alone, on inputs of your choice."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..blob import show
from ..errors import UsageError
from ..graph import Layer
from ..plugins import CustomLayer
from ..runtime.dump import read_dump
from ..runtime.host import run_layer as run_step
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array
    from ..net import Net


def run_layer(
    net: Net, name: str, inputs: Sequence[Any] | str | Path | None = None, *, jit: bool = True
) -> dict[str, Array]:
    """Return the tops of one layer, {blob: float32}, computed on the host.

    ``inputs``  one array per bottom; or a folder written by CHAI_DUMP; or None for the blobs of the last pass
                (``Net(..., keep="all")``)
    ``jit``     False: a custom layer runs as plain Python, so that a debugger can step into it

    Raises UsageError for an unknown layer or missing inputs, and the errors of the layer.
    """
    try:
        layer = net.graph.layer(name)
    except KeyError:
        known = "layers: " + ", ".join(layer.name for layer in net.graph.layers[:12])
        raise UsageError(f"there is no layer {name!r}", hint=net.graph.parts_hint(name) or known) from None
    bottoms = [np.asarray(b, np.float32, order="C") for b in _bottoms(net, layer, inputs)]
    if len(bottoms) != len(layer.bottoms):
        raise UsageError(f"layer {name!r} has {len(layer.bottoms)} bottoms, found {len(bottoms)} arrays")
    if isinstance(layer, CustomLayer) and not jit:
        layer = copy(layer)
        layer.jit = False
        layer.changed()
    given = tuple(b.shape for b in bottoms)
    shapes = {**dict(zip(layer.bottoms, given)), **dict(zip(layer.tops, layer.shapes(*given)))}
    with np.errstate(all="ignore"):
        tops, _ = run_step(layer, bottoms, shapes, 0.0)
    return {net.graph.caffe_name(blob): top for blob, top in zip(layer.tops, tops)}


def _bottoms(net: Net, layer: Layer, inputs: Sequence[Any] | str | Path | None) -> Sequence[Any]:
    if isinstance(inputs, (str, Path)):
        return [_dumped(net, Path(inputs), blob) for blob in layer.bottoms]
    if inputs is not None:
        return inputs
    values = net.values
    missing = [b for b in layer.bottoms if b not in values]
    if missing:
        known = ", ".join(f"{net.graph.caffe_name(b)} {show(v.shape)}" for b, v in values.items())
        raise UsageError(
            f"the inputs of layer {layer.name!r} were not kept: {', '.join(map(net.graph.caffe_name, missing))}",
            hint=f'Net(..., keep="all"), or give them; kept: {known or "nothing, no pass was run"}',
        )
    return [values[b] for b in layer.bottoms]


def _dumped(net: Net, folder: Path, blob: str) -> Array:
    if blob in net.graph.inputs:
        raise UsageError(
            f"blob {blob!r} is an input of the network, which a dump does not have",
            hint="give the arrays: run_layer(net, name, inputs=[...])",
        )
    return read_dump(folder, blob, next(layer.name for layer in net.graph.layers if blob in layer.tops))
