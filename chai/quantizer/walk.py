"""Run a network layer by layer on several batches at once, so that a layer can be changed once its inputs are known.

Host layers run as in the executor; overlay layers run their Tasks on the emulator. The results equal those of a compiled
schedule, but conversions happen on demand instead of being planned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from .. import devices
from ..blob import Array, Shape, batch_of, on_device
from ..devices.base import Program
from ..fixed import Format
from ..graph import Graph, Layer
from ..kernels.codes import pack
from ..overlay import Overlay
from ..passes.infer_shapes import infer_shapes
from ..runtime.steps.layers import run_layer
from ..tasks.arithmetic import Arithmetic, arithmetic
from ..tasks.unsupported import Unsupported
from ..tasks.work import Work
from ..util.data.shelf import Shelf
from ..util.lazy_numpy import np

Batch = Mapping[str, "Array"]


@dataclass
class BatchState:
    """One batch in progress: blobs in float32 and as codes, by id; on ``shelf``, if there is one, until they are read.

    ``packing`` is the overlay's arithmetic's, ``inputs`` are the network's.
    """

    shapes: Mapping[str, Shape]
    formats: Mapping[str, Format]
    host: dict[str, Array]
    codes: dict[str, Array] = field(default_factory=dict)
    shelf: Shelf | None = None
    packing: Callable[[Format, bool], Format] = Arithmetic.packing
    inputs: Collection[str] = ()

    @property
    def device_shapes(self) -> dict[str, Shape]:
        """Shapes of all blobs as a device has them."""
        return {blob: on_device(shape) for blob, shape in self.shapes.items()}

    @property
    def images(self) -> int:
        """Return the number of images of the batch."""
        return batch_of(self.shapes[blob] for blob in self.inputs)

    def value(self, blob: str) -> Array:
        """Return a blob in float32, as a host layer would get it."""
        if blob in self.host:
            return self.host[blob]
        return self.formats[blob].dequantize(self.codes[blob]).reshape(self.shapes[blob])

    def code(self, blob: str) -> Array:
        """Return a blob as codes, as a Task would get it."""
        if blob not in self.codes:
            codes = pack(self.host[blob], self.packing(self.formats[blob], blob in self.inputs))
            self.codes[blob] = codes.reshape(on_device(codes.shape))
        return self.codes[blob]

    def put_away(self, blobs: Iterable[str]) -> None:
        """Put blobs that a layer has written on the shelf."""
        if self.shelf is not None:
            for values in (self.host, self.codes):
                values.update({blob: self.shelf.put(values[blob]) for blob in blobs if blob in values})
            self.shelf.rest()

    def drop(self, blobs: Iterable[str]) -> None:
        """Free blobs that have no more readers."""
        for blob in blobs:
            self.host.pop(blob, None)
            self.codes.pop(blob, None)


def shapes_of(graph: Graph, feeds: Batch) -> dict[str, Shape]:
    """Return the shapes of all blobs for a batch."""
    return infer_shapes(graph, {blob: array.shape for blob, array in feeds.items()})


def in_float(graph: Graph, feeds: Batch) -> Iterator[tuple[Layer, list[Array], list[Array]]]:
    """Yield every layer in order with its bottoms and tops, float32; blobs are dropped after their last reader."""
    shapes = shapes_of(graph, feeds)
    values = dict(feeds)
    with np.errstate(all="ignore"):
        for layer, finished in zip(graph.layers, graph.last_readers):
            if not layer.source:
                bottoms = [values[b] for b in layer.bottoms]
                tops, _ = run_layer(layer, bottoms, shapes, 0.0)
                values.update(zip(layer.tops, tops))
                yield layer, bottoms, list(tops)
            for blob in finished:
                values.pop(blob, None)


@dataclass
class Emulation:
    """A network in fixed point: ``graph`` with a precision_param on every layer that needs one.

    ``placed``   names of the layers to run on the overlay; a layer whose numbers do not fit runs on the host
    ``refused``  reason by layer, for those that do not fit
    """

    graph: Graph
    formats: Mapping[str, Format]
    overlay: Overlay
    placed: Collection[str]
    refused: dict[str, str] = field(default_factory=dict)

    def run(
        self,
        batches: Sequence[Batch],
        keep: Collection[str],
        before: Callable[[Layer, list[BatchState]], None] | None = None,
        shelf: Shelf | None = None,
    ) -> list[BatchState]:
        """Run all layers on all batches; the returned states hold the blobs of ``keep``.

        ``before`` is called before each layer with the current states, and may change the layer's weights and
        precision_param. Blobs lie on ``shelf`` until they are read, so that memory does not grow with the batches.
        """
        shelf = shelf or Shelf()
        states = [self.state(shapes_of(self.graph, feeds), feeds, shelf) for feeds in batches]
        with ThreadPoolExecutor(min(len(states), len(os.sched_getaffinity(0)))) as pool:
            for layer, finished in zip(self.graph.layers, self.graph.last_readers):
                if not layer.source:
                    if before is not None:
                        before(layer, states)
                    self.step(layer, states, pool.map)
                for state in states:
                    state.drop(b for b in finished if b not in keep)
        return states

    def state(self, shapes: Mapping[str, Shape], host: Batch, shelf: Shelf | None = None) -> BatchState:
        """Return a batch with these blobs in float32."""
        packing = arithmetic(self.overlay).packing
        return BatchState(shapes, self.formats, dict(host), {}, shelf, packing, self.graph.inputs)

    def step(self, layer: Layer, states: Sequence[BatchState], every: Callable[..., Iterable[None]] = map) -> None:
        """Run one layer on all batches. Tasks are run by ``every``: map, or an executor's."""
        programs = self._programs(layer, states) if layer.name in self.placed else None
        if programs is not None:
            for _ in every(partial(self._on_device, layer, programs), states):
                pass
            return
        for state in states:
            self._on_host(layer, state)

    def _programs(self, layer: Layer, states: Sequence[BatchState]) -> dict[tuple[Shape, ...], Program] | None:
        """Return a program for each size of the layer's inputs, or None if one of them does not fit the overlay."""
        programs: dict[tuple[Shape, ...], Program] = {}
        for state in states:
            size = tuple(state.shapes[b] for b in layer.bottoms)
            if size not in programs:
                target = arithmetic(self.overlay)(self.overlay, self.formats, state.device_shapes)
                try:
                    tasks = layer.lower(target)
                except Unsupported as reason:
                    self.refused[layer.name] = str(reason)
                    return None
                programs[size] = devices.open("emulator").compile(Work(self.overlay, tasks, target.shapes))
        return programs

    def _on_device(self, layer: Layer, programs: Mapping[tuple[Shape, ...], Program], state: BatchState) -> None:
        blobs = {b: state.code(b) for b in layer.bottoms}
        programs[tuple(state.shapes[b] for b in layer.bottoms)].run(blobs)
        shapes, source = state.device_shapes, layer.bottoms[0]
        for top, first in layer.parts(shapes[source]).items():  # views, which no Task writes
            blobs[top] = blobs[source][:, first : first + shapes[top][1]]
        state.codes.update((t, blobs[t]) for t in layer.tops)
        state.put_away(blobs)

    def _on_host(self, layer: Layer, state: BatchState) -> None:
        layer = layer.beside(arithmetic(self.overlay).on_host)
        coded = all(b in state.codes for b in layer.bottoms)
        coded = coded and layer.takes_codes(tuple(state.shapes[b] for b in layer.bottoms))
        bottoms = [state.codes[b].reshape(state.shapes[b]) if coded else state.value(b) for b in layer.bottoms]
        with np.errstate(all="ignore"):
            compute = layer.on_codes(state.shapes, self.formats) if coded else None
            tops, _ = run_layer(layer, bottoms, state.shapes, 0.0, compute)
        tops = tuple(t.reshape(on_device(t.shape)) if coded else t for t in tops)
        (state.codes if coded else state.host).update(zip(layer.tops, tops))
        state.put_away(layer.tops)
