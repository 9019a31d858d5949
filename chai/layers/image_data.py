"""ImageData: images from a list of files."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.params import SIZE, within
from ..graph.source import DataSource


class ImageData(DataSource):
    """Its first top becomes an input. The list of files is never opened."""

    message = "image_data_param"

    @dataclass(frozen=True)
    class Params:
        """new_height and new_width resize each image when both are given."""

        batch_size: int = within(1, 2**31 - 1, 1)
        new_height: int = within(0, SIZE, 0)
        new_width: int = within(0, SIZE, 0)
        is_color: bool = True

    def size(self) -> tuple[int, int] | None:
        h, w = self.params.new_height, self.params.new_width
        return (h, w) if h and w else super().size()
