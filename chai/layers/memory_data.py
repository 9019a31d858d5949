"""MemoryData: arrays passed in memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Shape
from ..graph.params import SIZE, within
from ..graph.source import SourceLayer


class MemoryData(SourceLayer):
    """Tops: data of (batch_size, channels, height, width), and labels."""

    message = "memory_data_param"

    @dataclass(frozen=True)
    class Params:
        """All four sizes are required."""

        batch_size: int = within(0, SIZE, 0)
        channels: int = within(0, SIZE, 0)
        height: int = within(0, SIZE, 0)
        width: int = within(0, SIZE, 0)

    def declared(self) -> list[Shape | None]:
        p = self.params
        data = (p.batch_size, p.channels, p.height, p.width)
        if 0 in data:
            raise self.wrong("batch_size, channels, height and width must all be given")
        return [data, *[(p.batch_size,)] * (len(self.tops) - 1)]
