"""Numbering: a net's layers and blobs by number, as Caffe's compiled class has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .blob import Blob


class Numbering:
    """A net for programs that walk over it by number: layer i is ``layers[i]``, blob j is ``_blobs[j]``."""

    blobs: Mapping[str, Blob]
    inputs: Sequence[str]
    outputs: Sequence[str]
    bottom_names: Mapping[str, Sequence[str]]
    top_names: Mapping[str, Sequence[str]]
    _layers: list[Any]

    @property
    def _layer_names(self) -> list[str]:
        return [layer.name for layer in self._layers]

    @property
    def _blob_names(self) -> list[str]:
        return list(self.blobs)

    @property
    def _blobs(self) -> list[Blob]:
        return list(self.blobs.values())

    @property
    def _inputs(self) -> list[int]:
        return self._numbers(self.inputs)

    @property
    def _outputs(self) -> list[int]:
        return self._numbers(self.outputs)

    def _bottom_ids(self, layer: int) -> list[int]:
        """Return the numbers of the blobs that a layer reads."""
        return self._numbers(self.bottom_names[self._layer_names[layer]])

    def _top_ids(self, layer: int) -> list[int]:
        """Return the numbers of the blobs that a layer writes."""
        return self._numbers(self.top_names[self._layer_names[layer]])

    def _numbers(self, names: Sequence[str]) -> list[int]:
        order = self._blob_names
        return [order.index(name) for name in names]
