"""Layers on the host, run once or many times: in float32, custom ones among them, and those on codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from time import perf_counter

from ...blob import Array, Shape, is_plain, on_device, shape_of, show
from ...env import env
from ...errors import NO_PARAMETERS, ModelError, PluginError
from ...graph import Layer
from ...kernels.native import Link, NativeLayer
from ...util.lazy_numpy import np
from ..dump import dump
from ..renewing import Resized, Shown, Written
from ..slot import Slot, StepBlobs
from ..times import Rows, RunTimes, StepTime
from . import PreparedStep, names_of

Compute = Callable[..., tuple[Array, ...]]
CLAIMED = 24 << 20  # bytes at most that are taken before the first pass
SMALL = 4 << 20  # bytes of a blob, at most, whose layers run together in C: their calls take a part of their time


class PreparedLayer(PreparedStep):
    """A layer that is to run many times on bottoms of the shapes in ``shapes``; its tops take ``size`` bytes per number.

    ``compute`` replaces its forward.
    """

    layer: Layer
    compute: Compute | None = None

    def __init__(self, layer: Layer, shapes: Mapping[str, Shape], size: int = 4) -> None:
        self.layer, self._size = layer, size
        self.bottoms = tuple([shapes[b] for b in layer.bottoms])
        self.tops = tuple([shapes[t] for t in layer.tops])
        self.rows = self._of(self.bottoms, self.tops)
        self._in_turn = layer.turn.run if layer.engine == "custom" else layer.turn.run_alone
        self._forward = _forward_of(layer)

    def links(self, use: StepBlobs) -> list[Link]:
        form, layer = self.in_c(), self.layer
        return [] if form is None else [Link(form, names_of("host", layer.bottoms), names_of("host", layer.tops))]

    def in_c(self) -> NativeLayer | None:
        """Return it in C for a pass; None if its blobs are large, or C has none."""
        return self.native(rectified=False) if self.largest <= SMALL else None

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        layer, blobs, written = self.layer, slot.host, slot.written
        bottoms = [blobs[b] for b in layer.bottoms]
        if layer.engine == "custom":
            before = layer.name in written.shown
            tops, run = self.once(bottoms, slot.started, written)
            slot.before += sum(run.ms) if before else 0
        else:
            tops, run = self.run(bottoms, slot.started, self.compute)
        blobs.update(zip(layer.tops, tops))
        return run

    @property
    def largest(self) -> int:
        """Return the bytes of its largest blob in float32."""
        return 4 * max(map(prod, (*self.bottoms, *self.tops)), default=0)

    def native(self, rectified: bool, bottoms: tuple[Shape, ...] | None = None) -> NativeLayer | None:
        """Return it in C, if C can read its weights where they are; with the ReLU after it if that is ``rectified``.

        ``bottoms`` may have other shapes than its own.
        """
        layer = self.layer
        if layer.slope or layer.ceiling is not None:
            return None
        form = layer.native(bottoms or self.bottoms, rectified or layer.slope == 0)
        return form if form is not None and all(map(is_plain, form.parameters)) else None

    def run(
        self, bottoms: Sequence[Array], started: float, compute: Compute | None = None
    ) -> tuple[tuple[Array, ...], RunTimes]:
        """Return the tops in float32, after the layer's fused ReLU if it has one, and the time.

        ``compute`` replaces the layer's forward: on codes, which the tops are then, too, or with the ReLU after it.
        ``started`` is the start of the pass. Raises ShapeError if the tops do not have the shapes of the layer's rule,
        ModelError if memory runs out, and any error of the layer.
        """
        read = tuple(map(shape_of, bottoms))
        if read != self.bottoms and self.layer.engine != "custom":
            compute = self._on_others(read, compute)
        tops, begin, end = self._in_turn(_timed, self.layer, compute or self._forward, bottoms)
        return tops, self._done(bottoms, tops).run(begin, end, started)

    def once(self, bottoms: Sequence[Array], started: float, written: Written) -> tuple[tuple[Array, ...], RunTimes]:
        """Return the result of ``run``, of which ``written`` keeps what it has to; of what it has already, without a run.

        Raises Resized if the tops of a layer that ``renews`` are not of the sizes that the pass was planned for.
        """
        layer, name = self.layer, self.layer.name
        if not (layer.renews or name in written.noted or name in written.shown):
            return self.run(bottoms, started)
        begin, shown = perf_counter(), written.shown.get(name)
        if shown is None:
            raw, begin, end = layer.turn.run(_timed, layer, layer.forward, bottoms)
            shown = Shown(raw, (end - begin) * 1000)
        tops = layer.clamped(shown.tops, False)
        sizes = tuple(map(shape_of, tops))
        if resized := layer.renews and tuple(map(shape_of, bottoms)) == self.bottoms and sizes != self.tops:
            written.sizes[name] = sizes
        if resized or name in written.noted:
            written.shown[name] = shown
        if resized:
            new, planned = (", ".join(map(show, shapes)) for shapes in (sizes, self.tops))
            error = layer.wrong(f"its tops are {new} in this pass, which was planned for {planned}")
            raise Resized(error.message, layer=name)
        return tops, RunTimes(self._done(bottoms, tops), (shown.ms,), (begin - started) * 1000)

    def _on_others(self, read: tuple[Shape, ...], compute: Compute | None) -> Compute | None:
        """Return what computes it on bottoms of other shapes than planned: a blob before may vary in its rows.

        It is ``compute`` unless its tops have no numbers. Raises ShapeError if it cannot run on such bottoms.
        """
        tops = self.layer.shapes(*read)
        check_weights((self.layer,), dict(zip(self.layer.bottoms, read)))
        return compute if not tops or any(map(prod, tops)) else partial(_without_numbers, tops)

    def _done(self, bottoms: Sequence[Array], tops: Sequence[Array]) -> Rows:
        """Return the row of a run, after ``dump``: another than planned where a layer's tops have a variable number of rows."""
        read, written = tuple(map(shape_of, bottoms)), tuple(map(shape_of, tops))
        rows = self.rows
        if read != self.bottoms or written != self.tops:
            expected = self.tops if read == self.bottoms else self.layer.shapes(*read)
            for top, shape in zip(written, expected):
                if top != shape and not self.layer.dynamic:
                    raise self.layer.wrong(f"wrote {show(top)}, its shape rule says {show(shape)}")
            rows = self._of(read, written)
        if env().dump:
            for blob, top in zip(self.layer.tops, tops):
                dump(blob, self.layer.name, top)
        return rows

    def _of(self, bottoms: tuple[Shape, ...], tops: tuple[Shape, ...]) -> Rows:
        layer, written = self.layer, self._size * sum([prod(top) for top in tops])
        kind, ends = (layer.name, layer.type, layer.engine), (layer.bottoms, layer.tops)
        return Rows([StepTime(*kind, 0.0, layer.macs(bottoms, tops), written, *ends, layers=layer.origin)])


class OnCodes(PreparedLayer):
    """A layer on the device's codes. While formats are measured its function for float32 runs, never this one."""

    def __init__(self, layer: Layer, shapes: Mapping[str, Shape], compute: Compute) -> None:
        super().__init__(layer, shapes, 1)
        self.compute = compute

    def in_c(self) -> None:
        return None

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        layer, codes, written = self.layer, slot.codes, slot.written
        bottoms = [codes[b].reshape(shape) for b, shape in zip(layer.bottoms, self.bottoms)]
        before = written.codes.get(layer.name)
        tops, run = self.run(bottoms, slot.started, self.compute if before is None else lambda *_: before)
        if layer.name in written.noted:
            written.codes[layer.name] = tops
        codes.update((b, t.reshape(on_device(t.shape))) for b, t in zip(layer.tops, tops))
        return run


def run_layer(
    layer: Layer,
    bottoms: Sequence[Array],
    shapes: Mapping[str, Shape],
    started: float,
    compute: Compute | None = None,
    written: Written | None = None,
) -> tuple[tuple[Array, ...], StepTime]:
    """Run a layer once, see ``PreparedLayer.run``; with ``written`` see ``PreparedLayer.once``, but with a ``compute``."""
    prepared = PreparedLayer(layer, shapes)
    if written is None or compute is not None:
        tops, run = prepared.run(bottoms, started, compute)
    else:
        tops, run = prepared.once(bottoms, started, written)
    return tops, next(run.steps())


def prepare(layer: Layer, shapes: Mapping[str, Shape], without_weights: bool) -> None:
    """Prepare a layer before the first image. ``without_weights``: it may lack its trained parameters."""
    try:
        layer.prepare(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops if t in shapes))
    except PluginError as error:
        if not without_weights or error.hint != NO_PARAMETERS:
            raise
        # its function may need missing parameters: that is an error when it runs, but not when it is planned


def claimed(shapes: Mapping[str, Shape]) -> int:
    """Return the bytes in float32 of the two largest blobs, and as many again for a kernel's scratch memory."""
    return min(2 * 4 * sum(sorted(map(prod, shapes.values()))[-2:]), CLAIMED)


def check_weights(layers: Iterable[Layer], shapes: Mapping[str, Shape]) -> None:
    """Check that layers have the trained parameters for these sizes. Raises ShapeError."""
    for layer in layers:
        expected = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
        for i, (blob, shape) in enumerate(zip(layer.blobs, expected)):
            if blob.shape != shape:
                raise layer.wrong(
                    f"at these input sizes its weights (blob {i}) would be {show(shape)}, they are {show(blob.shape)}",
                    hint="feed inputs of the size that the network was trained for, which chai show lists",
                )


def short_of_memory(layer: Layer) -> ModelError:
    """Return the error of a layer for whose arrays there is no memory."""
    what = f"layer {layer.name!r} ({layer.type}): not enough memory"
    return ModelError(what, layer=layer.name, hint="a smaller batch needs less")


def _timed(layer: Layer, compute: Compute, bottoms: Sequence[Array]) -> tuple[tuple[Array, ...], float, float]:
    """Return the tops that ``compute`` returns for a layer, and when it began and ended."""
    begin = perf_counter()
    try:
        tops = compute(*bottoms)
    except MemoryError as error:
        raise short_of_memory(layer) from error
    return tops, begin, perf_counter()


def _forward_of(layer: Layer) -> Compute:
    """Return what computes a layer in float32, with the ReLU that a pass folded in."""
    compute: Compute = partial(_constants if layer.constant else _in_float32, layer)
    if layer.engine == "custom":
        compute = layer.forward
    return compute if layer.slope is None and layer.ceiling is None else partial(_clamped, layer, compute)


def _constants(layer: Layer, *bottoms: Array) -> tuple[Array, ...]:
    # copies: a later layer, or the caller, may write into the blob of its pass
    return tuple([top.copy() for top in layer.constants_for(tuple(map(shape_of, bottoms)))])


def _without_numbers(tops: tuple[Shape, ...], *bottoms: Array) -> tuple[Array, ...]:
    return tuple([np.empty(top, bottoms[0].dtype) for top in tops])


def _in_float32(layer: Layer, *bottoms: Array) -> tuple[Array, ...]:
    # numpy 1 converts scalars to float64; a blob is always float32
    return tuple([np.asarray(top, np.float32) for top in layer.forward(*bottoms)])


def _clamped(layer: Layer, compute: Compute, *bottoms: Array) -> tuple[Array, ...]:
    return layer.clamped(compute(*bottoms), layer.clamps)
