"""Input: blobs that the caller feeds."""

from __future__ import annotations

from ..blob import Shape
from ..graph.params import BlobShape, MessageFields, nested
from ..graph.source import SourceLayer
from ..text import number_of


class Input(SourceLayer):
    """The tops are the network's inputs in the given shapes; ``forward`` accepts other shapes."""

    class Params(MessageFields):
        shape: tuple[BlobShape, ...] = nested(BlobShape, repeated=True)

    def declared(self) -> list[Shape | None]:
        return self.of_tops([s.dim for s in self.params.shape] or [None])

    def of_tops(self, shapes: list[Shape | None]) -> list[Shape | None]:
        """Return one shape per top, of one for all or as many. Raises ShapeError for another number, and for an empty one."""
        if len(shapes) == 1:
            shapes *= len(self.tops)
        if len(shapes) != len(self.tops):
            raise self.wrong(f"{number_of(len(self.tops), 'top')} but {number_of(len(shapes), 'shape')}")
        if any(d < 1 for s in shapes for d in s or ()):
            raise self.wrong("an input size must be at least 1")
        return shapes
