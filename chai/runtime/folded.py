"""Folded: blobs that an overlay's plan does not compute, computed separately.

The plan runs a convolution, its BatchNorm and its ReLU as one layer, so the blobs between them do not exist. Keeping one
of them must not change the plan: another plan would round at other places, and the outputs would differ.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from functools import partial
from typing import cast

from ..blob import Array, Shape
from ..graph import Graph, Layer
from ..kernels.codes import pack, unpack
from ..offload.schedule import DeviceStep, HostStep, Schedule
from ..util.lazy_numpy import np
from .slot import LazyBlobs
from .steps.layers import run_layer


class Folded:
    """Computes the blobs ``keep`` of ``graph`` (ids) after a pass over ``rewritten``, the graph after the passes.

    A folded blob is computed in float32 by the prototxt's own layers from the bottoms of the plan's layer: dequantised
    codes if that runs on the device, the host's float32 otherwise. It is not rounded, as it has no format. A custom
    layer before a folded ReLU runs a second time for it.

    ``reads`` are the blobs (ids of ``rewritten``) that ``compute`` needs.
    """

    def __init__(
        self, graph: Graph, rewritten: Graph, schedule: Schedule, shapes: Mapping[str, Shape], keep: Collection[str]
    ) -> None:
        self.keep = [top for layer in graph.layers for top in layer.tops if top in keep]
        self.shapes = shapes
        self._packed = schedule.from_host
        self._coded = {
            layer.name
            for step in schedule.steps
            for layer in step.layers
            if isinstance(step, DeviceStep) or (isinstance(step, HostStep) and step.codes)
        }
        self._first = {layer.origin[0]: layer for layer in rewritten.layers}
        needed = set(self.keep)
        self._layers: list[Layer] = []
        for layer in reversed(graph.layers):
            if not needed.isdisjoint(set(layer.tops).difference(rewritten.writers)):
                self._layers.insert(0, layer)
                needed.update(self._bottoms(layer))
        self.reads = frozenset(needed.intersection(rewritten.writers))

    def compute(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the blobs of ``keep``, computed from those of ``reads``; these are the same if none is folded away."""
        if not self._layers:
            return values
        computed: dict[str, Array] = {}
        blobs = ChainMap(computed, cast("dict[str, Array]", values))  # which is only read
        with np.errstate(all="ignore"):  # as in the pass itself
            for layer in self._layers:
                bottoms = [self._read(layer, blob, blobs[blob]) for blob in self._bottoms(layer)]
                tops, _ = run_layer(layer, bottoms, self._sizes(layer), 0.0)
                computed.update((top, value) for top, value in zip(layer.tops, tops) if top not in values)
        return LazyBlobs({name: partial(blobs.__getitem__, name) for name in self.keep if name in blobs})

    def _bottoms(self, layer: Layer) -> tuple[str, ...]:
        """Return a layer's bottoms; for the first layer of a fused chain, those of the plan's layer.

        That of joined functions has one bottom, even if their first layer reads it twice.
        """
        bottoms = self._first.get(layer.name, layer).bottoms
        return bottoms * len(layer.bottoms) if len(bottoms) == 1 else bottoms

    def _sizes(self, layer: Layer) -> dict[str, Shape]:
        tops = {top: self.shapes[top] for top in layer.tops}
        return {**dict(zip(layer.bottoms, (self.shapes[b] for b in self._bottoms(layer)))), **tops}

    def _read(self, layer: Layer, blob: str, value: Array) -> Array:
        """Return a bottom's values as the plan's layer reads them: rounded if they are packed for the device."""
        first = self._first.get(layer.name)
        if first is None or first.name not in self._coded or blob not in self._packed:
            return value
        return unpack(pack(value, self._packed[blob]), self._packed[blob])
