"""Common interface of files with trained parameters: caffemodels and ONNX files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from ..blob import Array, Shape

if TYPE_CHECKING:
    from ..graph import Layer
    from ..util.data import malloc


class Shaped(Protocol):
    """One trained parameter of the file."""

    @property
    def shape(self) -> Shape: ...


class Stored(Protocol):
    """The trained parameters of one file, which are read by layer. ``layers`` has those of the file by name."""

    path: str

    @property
    def layers(self) -> Mapping[str, object]: ...

    def room(self) -> malloc.Room:
        """Return memory for the parameters of all layers."""

    def blobs_of(self, layer: Layer, room: malloc.Room | None = None) -> list[Array]:
        """Return a layer's parameters as float32 arrays, [] if there are none; in ``room`` if there is one."""

    def stored(self, layer: Layer) -> tuple[str, Sequence[Shaped]]:
        """Return the name that a network's layer has in the file, and its parameters."""
