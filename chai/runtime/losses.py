"""Losses and measures, computed after a pass from its blobs and the labels that were fed; and inputs that nothing reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from ..blob import Array
from ..errors import UsageError
from ..graph import Graph, Layer
from ..util.lazy_numpy import np
from .batches import numbers
from .steps.layers import run_layer
from .times import Times


class Losses:
    """The losses of a network: their ``layers`` in order, and the names of the ``labels``, among them inputs that nothing reads.

    ``reads`` are the blobs (ids) of the network that they compare with labels.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self._unread = graph.losses, graph.unread
        self.layers: list[Layer] = [] if graph.losses is None else graph.losses.layers
        self.labels = [*(() if graph.losses is None else graph.losses.inputs), *graph.unread]
        tops = {t for layer in self.layers for t in layer.tops}
        self.reads = {b for layer in self.layers for b in layer.bottoms} - tops - set(self.labels)

    def taken(self, inputs: dict[str, Any], own: bool = False) -> dict[str, Array]:
        """Remove the labels from the inputs of a pass and return them, each as ``numbers`` returns it."""
        return {name: numbers(name, inputs.pop(name), own) for name in self.labels if name in inputs}

    def apart(self, batches: Iterable[Any]) -> tuple[Iterator[Any], deque[dict[str, Array]]]:
        """Return the batches of a stream without labels, and a queue to which copies of each batch's labels are added.

        Raises UsageError for what has no batches.
        """
        queue: deque[dict[str, Array]] = deque()
        try:
            source = iter(batches)
        except TypeError:
            raise UsageError(
                f"stream: expected batches, found {type(batches).__name__}", hint="a list of them"
            ) from None

        def unlabelled() -> Iterator[Any]:
            for batch in source:
                inputs = dict(batch) if isinstance(batch, Mapping) else batch
                queue.append(self.taken(inputs, own=True) if isinstance(inputs, dict) else {})
                yield inputs

        return unlabelled(), queue

    def with_unread(self, values: Mapping[str, Array], labels: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the blobs of a pass, and with them the inputs that nothing reads."""
        unread = {blob: labels[blob] for blob in self._unread if blob in labels}
        return {**values, **unread} if unread else values

    def compute(
        self, values: Mapping[str, Array], labels: Mapping[str, Array], times: Times
    ) -> tuple[dict[str, Array], Times]:
        """Return the losses whose bottoms are all there, by Caffe's name, and the times of the pass with theirs.

        Raises ShapeError for labels of the wrong size, ModelError for a label that is no class.
        """
        if self._graph is None or not (layers := [*self._fed({*values, *labels})]):
            return {}, times
        from ..passes.infer_shapes import infer_shapes  # a pass without labels needs no shapes

        begin = perf_counter()
        blobs, steps = {**values, **labels}, []
        inputs = {b: blobs[b].shape for layer in layers for b in layer.bottoms if b in blobs}
        shapes = infer_shapes(replace(self._graph, layers=layers, inputs=dict(inputs)))
        with np.errstate(all="ignore"):
            for layer in layers:
                tops, step = run_layer(layer, [blobs[b] for b in layer.bottoms], shapes, begin)
                blobs.update(zip(layer.tops, tops))
                steps.append(step._replace(begin=step.begin + times.wall_ms))
        wall = times.wall_ms + (perf_counter() - begin) * 1000
        losses = {name: blobs[blob] for name, blob in self._graph.latest.items() if blob in blobs}
        return losses, replace(times, steps=(*times.steps, *steps), wall_ms=wall)

    def _fed(self, written: set[str]) -> Iterator[Layer]:
        for layer in self.layers:
            if written.issuperset(layer.bottoms):
                written.update(layer.tops)
                yield layer
