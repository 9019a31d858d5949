"""One forward pass on the host, in float32."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from math import fsum
from time import perf_counter

from ...blob import Array, Shape, images_of
from ...env import env
from ...graph import Graph
from ...kernels.native import NativeLayer
from ...kernels.native.library import library
from ...util.lazy_numpy import np
from ..renewing import Written
from ..times import RunTimes, Steps, Times
from .layer import SMALL, PreparedLayer, check_weights
from .memory import BlobLog, ChainMemory
from .steps import Alone, Together, Values, of_one_image, together


class _Kept:
    """The steps of the passes that keep the same blobs. ``unread`` inputs are dropped before them.

    ``peak`` are the bytes of blobs alive at once; None if these are to be counted: the first time, or in every pass.
    """

    def __init__(self, unread: Sequence[str], steps: Sequence[Alone | Together]) -> None:
        self.unread, self.steps = unread, steps
        self.peak: int | None = None
        self._chains = [step for step in steps if isinstance(step, Together)]

    @property
    def stale(self) -> bool:
        """Return whether a step has to be prepared again."""
        return any(chain.stale for chain in self._chains)


class HostPass:
    """The layers of a graph, prepared to run one by one, in prototxt order, on blobs of certain shapes.

    Raises ShapeError if their trained parameters have other shapes than they need.
    """

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape]) -> None:
        self.graph, self.shapes = graph, shapes
        check_weights(graph.layers, shapes)
        self._layers = [None if layer.source else PreparedLayer(layer, shapes) for layer in graph.layers]
        self._kept: dict[tuple[frozenset[str], bool], _Kept] = {}
        self._dynamic = any(layer.dynamic for layer in graph.layers)
        self._memory = ChainMemory(2 * SMALL)  # more would be missing where blobs are large

    def _keeping(self, keep: frozenset[str], every: bool) -> _Kept:
        """Return the steps of passes that keep these blobs; ``every`` blob is to be written, also those before a ReLU."""
        joined = frozenset[int]() if every else self.graph.rectified
        computed, steps = -1, list[Alone]()  # place of a ReLU that is computed already
        kernels = None if every else library()
        varying: set[str] = set()  # blobs whose shapes are known in the pass only
        unread: list[str] = []
        for i, (prepared, finished) in enumerate(zip(self._layers, self.graph.last_readers)):
            dropped = [blob for blob in finished if blob not in keep]
            compute = in_c = single = None
            if prepared is None:
                unread += dropped
                continue
            layer = prepared.layer
            if layer.dynamic or not varying.isdisjoint(layer.bottoms):
                varying.update(layer.tops)
            if i == computed:
                compute = _unchanged
            elif i in joined and layer.tops[0] not in keep:
                compute, computed = layer.rectified, i + 1
            if kernels is not None and varying.isdisjoint((*layer.bottoms, *layer.tops)):
                in_c = NativeLayer(None) if i == computed else prepared.native(rectified=computed > i)
                single = of_one_image(prepared, in_c, computed > i)
            steps.append(Alone(prepared, compute, dropped, in_c, single))
        return _Kept(unread, steps if kernels is None else [*together(steps, kernels, self.shapes, self._memory)])

    def run(
        self,
        feeds: Mapping[str, Array],
        keep: Collection[str],
        started: float | None = None,
        watch: Callable[[str, Array], None] | None = None,
        written: Written | None = None,
    ) -> tuple[dict[str, Array], Times]:
        """Return the blobs of ``keep`` (ids) and the times of the pass since ``started`` (default: now).

        Blobs are dropped after their last reader. A ReLU may be computed with the layer before it, and a Concat where its
        bottoms are; they take no time of their own then. ``watch`` is called with each blob that a layer wrote; ``written``
        is what custom layers wrote for this batch already. Raises PluginError for a failing custom layer, Resized for one
        that gives other sizes, ModelError if memory runs out.
        """
        started = perf_counter() if started is None else started
        key = frozenset(keep), watch is not None or bool(env().dump)
        kept = self._kept.get(key)
        if kept is None or kept.stale:
            check_weights(self.graph.layers, self.shapes)  # C reads as many as the shapes say
            with np.errstate(all="ignore"):
                kept = self._kept[key] = self._keeping(*key)
        log = BlobLog() if kept.peak is None else None
        values = Values(feeds, started, log, watch, written or Written())
        values.drop(kept.unread)
        runs: list[RunTimes] = []
        begin = perf_counter()
        with np.errstate(all="ignore"):  # as in Caffe, an overflow is inf without a warning
            for step in kept.steps:
                runs.append(step.run(values))
                values.drop(step.dropped)
        before, between = (begin - started) * 1000, (perf_counter() - begin) * 1000
        between -= fsum(chain.from_iterable([run.ms for run in runs]))
        total = sum([run.rows.bytes for run in runs]) + sum([f.nbytes for f in feeds.values()])
        batch = images_of(feeds)
        if log is not None and not self._dynamic:
            kept.peak = int(log)
        peak = log or kept.peak or 0
        wall, composed = (perf_counter() - started) * 1000, self.graph.composed
        return values.blobs, Times(Steps(runs), wall, batch, peak, total, before, between, composed=composed)


def run(
    graph: Graph,
    shapes: Mapping[str, Shape],
    feeds: Mapping[str, Array],
    keep: Collection[str],
    watch: Callable[[str, Array], None] | None = None,
    written: Written | None = None,
) -> tuple[dict[str, Array], Times]:
    """Run a graph once, see ``HostPass.run``."""
    return HostPass(graph, shapes).run(feeds, keep, None, watch, written)


def _unchanged(*bottoms: Array) -> tuple[Array, ...]:
    return bottoms
