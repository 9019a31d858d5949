"""Access to a segment's blobs in a device's memory, whatever runs them there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..overlay.layout import fetch, store
from .memory_map import READ, WRITTEN, Regions, split

if TYPE_CHECKING:
    from ..blob import Array, Shape
    from ..overlay import Layout, Overlay


class HostBlobs:
    """Blobs in regions, as the host stores and loads them; base of what an overlay runs for a segment."""

    overlay: Overlay
    shapes: Mapping[str, Shape]
    regions: Regions

    @property
    def written(self) -> list[int]:
        """Return the regions that the host writes before a run."""
        return [region for region in self.regions.sizes if region in WRITTEN]

    @property
    def read(self) -> list[int]:
        """Return the regions that the host reads after a run."""
        return [region for region in self.regions.sizes if region in READ]

    def store(self, blob: str, codes: Array, memory: Mapping[int, Array]) -> None:
        """Store a blob's codes (int8, NCHW) into the regions' bytes (uint8)."""
        store(codes, *self._memory(blob, memory))

    def load(self, blob: str, first: int, out: Array, memory: Mapping[int, Array]) -> None:
        """Load a blob's codes into ``out``, from channel ``first``."""
        bytes, layout, start, channels = self._memory(blob, memory)
        fetch(bytes, out, layout, start + first, channels)

    def _memory(self, blob: str, memory: Mapping[int, Array]) -> tuple[Array, Layout, int, int]:
        region, offset = split(self.regions.blobs[blob].offset)
        whole, first = self.regions.whole(blob)
        return memory[region][offset:], self.overlay.layout, first, self.shapes[whole][1]
