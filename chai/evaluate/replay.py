"""Run one layer of a network alone, on inputs of your choice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from ..blob import Array, show
from ..errors import UsageError
from ..graph import Layer
from ..net import Net
from ..plugins.layer import CustomLayer
from ..runtime.batches import numbers
from ..runtime.dump import read_dump
from ..runtime.steps.layers import run_layer as run_step
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.suggest import did_you_mean


def run_layer(
    net: Net, name: str, inputs: Sequence[Any] | str | Path | None = None, *, jit: bool = True
) -> dict[str, Array]:
    """Return the tops of one layer, {blob: float32}, computed on the host. Of a composed layer all parts are.

    ``inputs``  one array per bottom, in a list unless there is one; or a folder written by CHAI_DUMP; or None for the blobs
                of the last pass (``Net(..., keep="all")``)
    ``jit``     False: a custom layer runs as plain Python, so that a debugger can step into it

    Raises UsageError for an unknown layer, missing inputs or a closed network, and the errors of the layer.
    """
    graph = net.graph
    net._check_open()
    layers = graph.members(name)
    if not layers:
        names = [*graph.by_name, *graph.composed]
        hints = [did_you_mean(name, names), f"layers: {', '.join(names[:12])}"]
        raise UsageError(f"there is no layer {name!r}", hint=" ".join(filter(None, hints)))
    bottoms, tops = graph.ends(name)
    if name in graph.composed and not tops:
        hint = f"load the prototxt, or name one of its parts: {', '.join(graph.composed[name].parts[:12])}"
        raise UsageError(f"layer {name!r} is composed, and {net.name} was compiled without its ends", hint=hint)
    arrays = [*_inputs(net, name, bottoms, inputs)]
    if len(arrays) != len(bottoms):
        raise UsageError(
            f"layer {name!r} has {number_of(len(bottoms), 'bottom')}, found {number_of(len(arrays), 'array')}"
        )
    values = {b: numbers(graph.caffe_name(b), array, own=True) for b, array in zip(bottoms, arrays) if b is not None}
    for layer in layers:
        values.update(zip(layer.tops, _run(layer, [values[b] for b in layer.bottoms], jit)))
    return {graph.caffe_name(blob): values[blob] for blob in tops}


def _run(layer: Layer, bottoms: Sequence[Array], jit: bool) -> Sequence[Array]:
    if isinstance(layer, CustomLayer) and not jit:
        layer = copy(layer)
        layer.jit = False
        layer.changed()
    sizes = tuple(b.shape for b in bottoms)
    shapes = {**dict(zip(layer.bottoms, sizes)), **dict(zip(layer.tops, layer.shapes(*sizes)))}
    with np.errstate(all="ignore"):
        return run_step(layer, bottoms, shapes, 0.0)[0]


def _inputs(
    net: Net, name: str, bottoms: Sequence[str | None], inputs: Sequence[Any] | str | Path | None
) -> Sequence[Any]:
    if isinstance(inputs, (str, Path)):
        return [None if blob is None else _dumped(net, Path(inputs), blob) for blob in bottoms]
    if inputs is not None:  # one array alone is no list of its images
        return [inputs] if isinstance(inputs, np.ndarray) or not isinstance(inputs, Iterable) else inputs
    values = net.values
    missing = [b for b in bottoms if b is not None and b not in values]
    if missing:
        kept = ", ".join(f"{net.graph.caffe_name(b)} {show(v.shape)}" for b, v in values.items())
        raise UsageError(
            f"the inputs of layer {name!r} were not kept: {', '.join(map(net.graph.caffe_name, missing))}",
            hint=f'Net(..., keep="all"), or give them; kept: {kept or "nothing, no pass was run"}',
        )
    return [None if blob is None else values[blob] for blob in bottoms]


def _dumped(net: Net, folder: Path, blob: str) -> Array:
    if blob in net.graph.inputs:
        message = f"blob {blob!r} is an input of the network, which a dump does not have"
        raise UsageError(message, hint="give the arrays: run_layer(net, name, inputs=[...])")
    return read_dump(folder, blob, net.graph.writers[blob].name)
