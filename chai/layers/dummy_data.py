"""DummyData: constant or random blobs, used in Caffe for timing."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Shape
from ..graph.params import SIZE, BlobShape, nested, within
from ..graph.source import SourceLayer


class DummyData(SourceLayer):
    """Its tops become inputs: the caller's data replace the fillers'."""

    message = "dummy_data_param"

    @dataclass(frozen=True)
    class Params:
        """shape, or the legacy num, channels, height and width; one for all tops or one per top."""

        shape: tuple[BlobShape, ...] = nested(BlobShape, repeated=True)
        num: tuple[int, ...] = within(1, SIZE, ())
        channels: tuple[int, ...] = within(1, SIZE, ())
        height: tuple[int, ...] = within(1, SIZE, ())
        width: tuple[int, ...] = within(1, SIZE, ())

    def declared(self) -> list[Shape | None]:
        p = self.params
        shapes: list[Shape | None] = [s.dim for s in p.shape] or self._legacy()
        if len(shapes) == 1:
            shapes *= len(self.tops)
        if len(shapes) != len(self.tops):
            raise self.wrong(f"{len(self.tops)} tops but {len(shapes)} shapes")
        if any(d < 1 for s in shapes for d in s or ()):
            raise self.wrong("a size must be at least 1")
        return shapes

    def _legacy(self) -> list[Shape | None]:
        """Return the shapes that num, channels, height and width give: each once for all tops, or once per top."""
        p, tops = self.params, len(self.tops)
        columns = [p.num, p.channels, p.height, p.width]
        if not any(columns):
            return []
        if any(len(c) not in (1, tops) for c in columns):
            raise self.wrong(f"num, channels, height and width must each be given once or {tops} times")
        return list(zip(*(c * tops if len(c) == 1 else c for c in columns)))
