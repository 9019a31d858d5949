"""Files with trained parameters, which are read by layer: caffemodels and ONNX files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..blob import Array

if TYPE_CHECKING:
    from ..graph import Layer
    from ..util.data import malloc


class Stored(ABC):
    """The trained parameters of one file. ``layers`` has the blobs of each layer of the file by name."""

    path: str
    layers: Mapping[str, Sequence[Any]]

    def blobs_of(self, layer: Layer, room: malloc.Room | None = None) -> list[Array]:
        """Return the blobs of a network's layer, float32 as they are stored, [] for none; in ``room`` if there is one."""
        return self._read(*self.stored(layer), room)

    @abstractmethod
    def room(self) -> malloc.Room:
        """Return memory for the parameters of all layers."""

    def stored(self, layer: Layer) -> tuple[str, Sequence[Any]]:
        """Return the name that a network's layer has in the file, and its blobs."""
        return layer.name, self.layers.get(layer.name, [])

    @abstractmethod
    def _read(self, name: str, blobs: Sequence[Any], room: malloc.Room | None = None) -> list[Array]:
        """Return blobs of the layer of that name in the file as float32 arrays."""
