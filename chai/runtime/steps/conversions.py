"""Conversions between float32 on the host and codes on a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from time import perf_counter
from typing import TYPE_CHECKING

from ...blob import Array, Shape
from ...errors import ModelError
from ...graph import Graph
from ...kernels.codes import counting, pack, packing, unfolded, unfolding, unpack, unpacking
from ...kernels.native import Link, NativeLayer
from ...kernels.native.single import Single
from ...offload.schedule import Pack, Unpack
from ...overlay.layout import DeviceBlob
from ...util.lazy_numpy import np
from ..slot import Slot, StepBlobs
from ..times import Rows, RunTimes, StepTime
from . import PreparedStep, name_of

if TYPE_CHECKING:
    from ...images.pictures import Feed


class _Conversion(PreparedStep):
    """A conversion of a blob between float32 and codes; its result has this shape and size in bytes."""

    def __init__(
        self, step: Pack | Unpack, graph: Graph, shape: Shape, size: int, ends: tuple[int, int] | None
    ) -> None:
        self.graph, self.format, self.shape, self.ends = graph, step.format, shape, ends
        self.notes, self.converted = ends is not None, 0 if ends is None else prod(shape)
        self.source, self.target = step.blob, step.result
        self.name, blobs = graph.caffe_name(step.blob), (step.blob,)
        written = size * prod(shape)
        self.rows = Rows([StepTime(f"{step.type} {self.name}", step.type, "host", 0.0, 0, written, blobs, blobs)])

    def count(self, codes: Array, slot: Slot) -> None:
        """Count the codes that are saturated: at an end of their format, unless that is 0."""
        if self.ends is None:
            return
        low, high = self.ends
        slot.converted += codes.size
        if codes.max(initial=low) == high:  # most have none, and a maximum is found faster
            slot.saturated += int(np.count_nonzero(codes == high))
        if low != self.format.zero and codes.min(initial=high) == low:
            slot.saturated += int(np.count_nonzero(codes == low))

    def linked(self, singles: Sequence[tuple[Single | None, str, str]], codes: str, shape: Shape) -> list[Link]:
        """Return operations, each with what it reads and writes, and one that counts codes, if that is to be."""
        if self.ends is not None:
            low, high = self.ends
            singles = [*singles, (counting(shape, (high if low == self.format.zero else low, high)), codes, "")]
        links = [
            Link(NativeLayer(single), (reads,), (writes,) if writes else (), rows=0 if i else 1)
            for i, (single, reads, writes) in enumerate(singles)
            if single is not None
        ]
        return links if len(links) == len(singles) else []

    def noted(self, notes: Iterator[int], slot: Slot) -> None:
        if self.ends is not None:
            slot.saturated += next(notes)

    def count_in(self, blob: DeviceBlob, slot: Slot) -> None:
        """Count them in a device's memory, without the words' channels after the last."""
        if self.ends is None:
            return
        words = blob.words
        full, rest = divmod(blob.shape[1], words.shape[-1])
        self.count(words[:, :full], slot)
        if rest:
            self.count(words[:, full, ..., :rest], slot)


class Packing(_Conversion):
    """The codes of a blob of the host."""

    def __init__(self, step: Pack, graph: Graph, shapes: Mapping[str, Shape], counting: bool) -> None:
        super().__init__(step, graph, shapes[step.result], 1, step.format.packed if counting else None)
        self.unfold, self.plain = step.unfold, shapes[step.blob]
        self.notes, self.converted = True, 0 if self.ends is None else prod(self.plain)

    def links(self, use: StepBlobs) -> list[Link]:
        codes = name_of("device", self.source)
        singles = [(packing(self.plain, self.format), name_of("host", self.source), codes)]
        if self.unfold is not None:
            copies = unfolding(self.plain, self.unfold, self.format.zero)
            singles.append((copies, codes, name_of("device", self.target)))
        return self.linked(singles, codes, self.plain)

    def noted(self, notes: Iterator[int], slot: Slot) -> None:
        if next(notes):
            try:
                pack(np.full(1, np.nan, np.float32), self.format)
            except ModelError as error:
                raise self._refusal(error) from None
        super().noted(notes, slot)

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        begin, feed = perf_counter(), slot.host[self.source]
        try:
            if use.direct is not None:
                self._in_place(feed, slot.sets[use.direct].blob(self.target), slot)
            else:
                codes = self._counted(feed, slot)
                if self.unfold is not None:
                    codes = unfolded(codes, self.unfold, self.format.zero)
                slot.codes[self.target] = codes.reshape(self.shape)
        except ModelError as error:
            # without its frames, which would keep the device's memory
            raise self._refusal(error) from error.with_traceback(None)
        return self.rows.run(begin, perf_counter(), slot.started)

    def _refusal(self, error: ModelError) -> ModelError:
        """Return an error in the words of the user's network."""
        return self.graph.writers[self.source].failure(ModelError(f"blob {self.name!r}: {error.message}"))

    def _counted(self, feed: Feed, slot: Slot) -> Array:
        """Return the codes (int8, NCHW) of a blob's numbers, or of pictures, after those that are saturated were counted."""
        codes = pack(feed, self.format) if isinstance(feed, np.ndarray) else feed.codes(self.format)
        self.count(codes, slot)
        return codes

    def _in_place(self, feed: Feed, target: DeviceBlob, slot: Slot) -> None:
        from ...kernels.device_blobs import pack_into, store, unfold_into  # which some devices do without

        if self.unfold is not None:
            unfold_into(self._counted(feed, slot), self.unfold, self.format.zero, target)
        elif isinstance(feed, np.ndarray):
            pack_into(feed.reshape(self.shape), self.format, target)
            self.count_in(target, slot)
        else:
            store(self._counted(feed, slot).reshape(self.shape), target)


class Unpacking(_Conversion):
    """The float32 values of a blob of the device."""

    def __init__(self, step: Unpack, graph: Graph, shapes: Mapping[str, Shape], counting: bool) -> None:
        clamped = any(layer.ceiling is not None for layer in graph.layers if step.blob in layer.tops)  # as it should be
        ends = step.format.range if counting and not clamped else None
        super().__init__(step, graph, shapes[step.blob], 4, ends)

    def links(self, use: StepBlobs) -> list[Link]:
        codes = name_of("device", self.source)
        single = unpacking(self.shape, self.format)
        return self.linked([(single, codes, name_of("host", self.target))], codes, self.shape)

    def __call__(self, slot: Slot, use: StepBlobs) -> RunTimes:
        begin = perf_counter()
        if use.direct is None:
            codes = slot.codes[self.source].reshape(self.shape)
            self.count(codes, slot)
            slot.host[self.target] = unpack(codes, self.format)
        else:
            from ...kernels.device_blobs import unpack_from  # which some devices do without

            source = slot.sets[use.direct].blob(self.source)
            self.count_in(source, slot)
            slot.host[self.target] = unpack_from(source, self.format).reshape(self.shape)
        return self.rows.run(begin, perf_counter(), slot.started)
