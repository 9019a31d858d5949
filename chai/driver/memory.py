"""A program in a device's memory: it and its constants are placed once, blobs are stored and loaded around each run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from ..blob import Array, View, codes_of
from ..codegen.memory_map import FIXED, PROGRAM, Buffers, HostBlobs
from ..errors import DeviceError
from ..kernels import device_blobs
from ..overlay.layout import DeviceBlob

Result = TypeVar("Result")
NONE = frozenset[str]()


class NoRoom(DeviceError):
    """The device's memory does not suffice."""


def place(segment: HostBlobs, memory: Buffers) -> None:
    """Write the program into new buffers, and the constants unless the first set has them."""
    if FIXED in memory.own:
        segment.fix(memory.addresses, memory.bytes[FIXED])
    else:
        segment.relocate(memory.addresses, memory.bytes[PROGRAM])
    # and what only the accelerator writes: lines of it that are dirty would be written back over results later
    memory.flush([region for region in memory.own if region not in segment.written])


class BlobSet:
    """The blobs that host and device exchange for a segment, in ``memory`` where its program is placed.

    A batch has it as long as its ``lease`` is not empty. ``retired`` memory is released when no batch has it.
    """

    def __init__(self, segment: HostBlobs, memory: Buffers) -> None:
        self.segment, self.memory = segment, memory
        self.lease: Collection[object] = ()
        self.retired = False
        self.blobs: dict[str, DeviceBlob] = {}
        self.stores = [(blob, segment.blob(blob, memory.bytes)) for blob in segment.regions.given]
        self.loads = [
            (blob, first, channels, segment.blob(blob, memory.bytes, first, channels))
            for blob, first, channels in segment.wanted
        ]
        self._written, self._read, self._runs = segment.written, segment.read, bool(segment.tasks)

    def blob(self, name: str) -> DeviceBlob:
        if (blob := self.blobs.get(name)) is None:
            blob = self.blobs[name] = self.segment.blob(name, self.memory.bytes)
        return blob

    def store(self, blobs: dict[str, Array], views: Mapping[str, View], packed: Collection[str] = NONE) -> None:
        """Store the inputs but those that are ``packed`` there, and let the accelerator see all of them."""
        for name, blob in self.stores:
            if name not in packed:
                device_blobs.store(codes_of(name, blobs, self.segment.shapes, views), blob)
        self.memory.flush(self._written)

    def load(self, blobs: dict[str, Array], views: Mapping[str, View], unpacked: Collection[str] = NONE) -> None:
        """Let the host see the outputs, and load all but those that are to be ``unpacked`` there."""
        self.memory.invalidate(self._read)
        for name, first, channels, blob in self.loads:
            if name not in unpacked:
                codes = codes_of(name, blobs, self.segment.shapes, views)[:, first : first + channels]
                device_blobs.fetch(blob, codes)

    def run(
        self,
        blobs: dict[str, Array],
        views: Mapping[str, View],
        start: Callable[[], Result],
        packed: Collection[str] = NONE,
        unpacked: Collection[str] = NONE,
    ) -> Result | None:
        """Store the inputs, ``start`` the program and wait for its end, and load the outputs.

        Returns what ``start`` returns, None without Tasks.
        """
        self.store(blobs, views, packed)  # no variable here refers to the memory: an error's traceback would keep it
        result = start() if self._runs else None
        self.load(blobs, views, unpacked)
        return result

    def free(self) -> None:
        self.stores.clear()  # views of it
        self.loads.clear()
        self.blobs.clear()
        self.memory.free()
