"""Base of input and data layers: the caller feeds their tops, so they only declare shapes."""

from __future__ import annotations

from ..blob import Shape
from .layer import Layer
from .transform import Transform


class SourceLayer(Layer):
    """A layer without bottoms. ``declared`` holds the shape of each top in the file, None if the file has none."""

    source = True
    bottoms_allowed = (0, 0)
    tops_allowed = (1, None)

    transform: Transform | None = None

    @property
    def notes(self) -> list[str]:
        """Return the assumptions about the tops' shapes, one text each."""
        return []

    def declared(self) -> list[Shape | None]:
        """Return one shape (or None) per top."""
        return [None] * len(self.tops)


class DataSource(SourceLayer):
    """A training net's data layer: ``data`` and optionally ``label``. The database itself is never opened."""

    def size(self) -> tuple[int, int] | None:
        """Return height and width of an item before cropping, None if the layer's messages do not give them."""
        return self.transform.resize if self.transform else None

    def batch(self) -> int:
        """Return the number of items in a batch."""
        return int(getattr(self.params, "batch_size", None) or 1)

    def declared(self) -> list[Shape | None]:
        size = (self.transform.crop if self.transform else None) or self.size()
        data = (self.batch(), self._channels(), *size) if size else None
        return [data, *[None] * (len(self.tops) - 1)]

    def _channels(self) -> int:
        color = getattr(self.params, "is_color", True)
        return 1 if not color or (self.transform and self.transform.force_gray) else 3

    @property
    def notes(self) -> list[str]:
        shape = self.declared()[0]
        if shape is None or hasattr(self.params, "is_color"):
            return []
        return [f"layer {self.name!r} ({self.type}): {shape[1]} channels assumed; the file does not say"]
