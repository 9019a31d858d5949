"""One forward pass on the host, in float32."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from ...blob import Array, Shape, images_of
from ...env import env
from ...graph import Graph
from ...kernels.native import NativeLayer
from ...kernels.native.library import library
from ...util.lazy_numpy import np
from ..renewing import Written
from ..slot import Kept, Slot, StepBlobs
from ..times import BlobLog, Times
from . import ChainMemory
from .in_c import Member, in_c
from .layers import SMALL, PreparedLayer, check_weights

if TYPE_CHECKING:
    from ...offload.schedule import Blobs

APART = 1 << 20  # bytes of a blob of several images that run together, at most; those of one are in nearer caches


class Alone(PreparedLayer):
    """A layer of a pass in float32. ``form`` computes it in C; of several ``images`` each, which then run one after the other."""

    form: NativeLayer | None = None

    def in_c(self) -> NativeLayer | None:
        return self.form


class HostPass:
    """The layers of a graph, prepared to run one by one, in prototxt order, on blobs of certain shapes.

    Raises ShapeError if their trained parameters have other shapes than they need.
    """

    def __init__(self, graph: Graph, shapes: Mapping[str, Shape]) -> None:
        self.graph, self.shapes = graph, shapes
        check_weights(graph.layers, shapes)
        self._kept: dict[tuple[frozenset[str], bool], Kept] = {}
        self._dynamic = any(layer.dynamic for layer in graph.layers)
        self._memory = ChainMemory(2 * SMALL)  # more would be missing where blobs are large

    def _keeping(self, keep: frozenset[str], every: bool) -> Kept:
        """Return the steps of passes that keep these blobs; ``every`` blob is to be written, also those before a ReLU."""
        members = [*self._members(keep, every)]
        if not every and library() is not None:
            members = [*in_c(members, keep, (), {"host": self.shapes}, self._memory, whole=True)]
        return Kept(keep, members)

    def _members(self, keep: frozenset[str], every: bool) -> Iterator[Member]:
        """Yield the layers one by one, with what C has of them.

        Where blobs are large, images run one after the other, if they can; the steps that follow do so, too.
        """
        joined = frozenset[int]() if every else self.graph.rectified
        computed, apart = -1, False  # place of a ReLU that is computed already; whether images run one after the other
        kernels = None if every else library()
        varying: set[str] = set()  # blobs whose shapes are known in the pass only
        for i, (layer, finished) in enumerate(zip(self.graph.layers, self.graph.last_readers)):
            if layer.source:
                continue
            step, single = Alone(layer, self.shapes), None
            if layer.dynamic or not varying.isdisjoint(layer.bottoms):
                varying.update(layer.tops)
            if i == computed:
                step.compute = lambda *bottoms: bottoms
            elif i in joined and layer.tops[0] not in keep:
                step.compute, computed = layer.rectified, i + 1
            if kernels is not None and varying.isdisjoint((*layer.bottoms, *layer.tops)):
                step.form = NativeLayer(None) if i == computed else step.native(rectified=computed > i)
                single = _of_one_image(step, step.form, computed > i)
            apart = single is not None and (apart or step.largest > APART)
            if apart:
                step.form, step.images = single, step.bottoms[0][0]
            step.large = step.largest // step.images > SMALL
            unread = (top for top in layer.tops if top in finished and top not in keep)
            yield step, StepBlobs(_on_host(layer.bottoms), _on_host(layer.tops), _on_host(unread))

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
        if key not in self._kept:
            with np.errstate(all="ignore"):
                self._kept[key] = self._keeping(*key)
        kept = self._kept[key]
        log = BlobLog() if kept.peak is None else None
        slot = Slot(feeds, kept, started, log, written or Written())
        begin = perf_counter()
        slot.feed = (begin - started) * 1000
        with np.errstate(all="ignore"):  # as in Caffe, an overflow is inf without a warning
            for step, use in kept.steps:
                run = step(slot, use)
                if watch is not None:
                    for _, blob in use.written:
                        watch(blob, slot.host[blob])
                begin = slot.done(use, run, begin)
        if log is not None and not self._dynamic:
            kept.peak = int(log)
        return {b: v for b, v in slot.host.items() if b in kept.blobs}, slot.times(begin, images_of(feeds), self.graph)


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


def _of_one_image(prepared: PreparedLayer, form: NativeLayer | None, rectified: bool) -> NativeLayer | None:
    """Return what computes a layer in C for one of several images; None if ``form``, that of all, does not keep images apart.

    None also for an output of one pixel, as of an inner product: each row of weights is read once for all images.
    """
    shapes = (*prepared.bottoms, *prepared.tops)
    images = shapes[0][0] if shapes and shapes[0] else 0
    if form is None or images < 2 or any(not shape or shape[0] != images for shape in shapes):
        return None
    if form.single is None:
        return NativeLayer(None, parts=min(form.parts, 1)) if form.parts in (0, images) else None
    of = form.single.operation
    if of.images != images or len({*prepared.bottoms}) > 1 or (form.parameters and of.out_height * of.out_width == 1):
        return None
    return prepared.native(rectified, tuple([(1, *bottom[1:]) for bottom in prepared.bottoms]))


def _on_host(blobs: Iterable[str]) -> Blobs:
    return tuple([("host", blob) for blob in blobs])
