"""Layers on the host: in float32, custom ones among them, and those on codes."""

from __future__ import annotations

from collections.abc import Callable

from ...blob import Array, on_device
from ...kernels.native import Link, NativeLayer
from ..host.layer import SMALL, PreparedLayer
from ..slot import Slot, StepBlobs
from ..times import RunTimes
from . import PreparedStep, names_of


class OnHost(PreparedStep):
    """A layer in float32; ``compute`` replaces its forward."""

    def __init__(self, layer: PreparedLayer, compute: Callable[..., tuple[Array, ...]] | None = None) -> None:
        self.run, self.compute, self.bottoms, self.tops = layer.run, compute, layer.layer.bottoms, layer.layer.tops
        self.prepared, self.layer, self.rows = layer, layer.layer, layer.rows

    def links(self, use: StepBlobs) -> list[Link]:
        form = self.native()
        return [] if form is None else [Link(form, names_of("host", self.bottoms), names_of("host", self.tops))]

    def native(self) -> NativeLayer | None:
        """Return it in C; None if its blobs are large, or C has none."""
        return self.prepared.native(rectified=False) if self.prepared.largest <= SMALL else None

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        blobs = slot.host
        tops, run = self.run([blobs[b] for b in self.bottoms], slot.started, self.compute)
        blobs.update(zip(self.tops, tops))
        return run


class CustomOnHost(OnHost):
    """A custom layer in float32."""

    def native(self) -> None:
        return None

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        blobs, written, layer = slot.host, slot.written, self.prepared
        before = layer.layer.name in written.shown
        tops, run = layer.once([blobs[b] for b in self.bottoms], slot.started, written)
        if before:
            slot.before += sum(run.ms)
        blobs.update(zip(self.tops, tops))
        return run


class OnCodes(PreparedStep):
    """A layer on the device's codes. While formats are measured its function for float32 runs, never this one."""

    def __init__(self, layer: PreparedLayer, compute: Callable[..., tuple[Array, ...]]) -> None:
        self.prepared, self.compute = layer, compute

    def __call__(self, slot: Slot, _: StepBlobs) -> RunTimes:
        layer, codes, name, written = self.prepared, slot.codes, self.prepared.layer.name, slot.written
        bottoms = [codes[b].reshape(shape) for b, shape in zip(layer.layer.bottoms, layer.bottoms)]
        before = written.codes.get(name)
        tops, run = layer.run(bottoms, slot.started, self.compute if before is None else lambda *_: before)
        if name in written.noted:
            written.codes[name] = tops
        codes.update((b, t.reshape(on_device(t.shape))) for b, t in zip(layer.layer.tops, tops))
        return run
