"""DenseImageData: images and their label maps from a list of files."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.params import SIZE, within
from ..graph.source import DataSource


class DenseImageData(DataSource):
    """Its first top becomes an input. The list of files is never opened."""

    message = "dense_image_data_param"
    fork = "alexgkendall/caffe-segnet"

    @dataclass(frozen=True)
    class Params:
        """crop_height and crop_width, or else new_height and new_width, are the size of the images."""

        batch_size: int | None = within(1, 2**31 - 1)
        new_height: int = within(0, SIZE, 0)
        new_width: int = within(0, SIZE, 0)
        is_color: bool = True
        crop_width: int = within(0, SIZE, 0)
        crop_height: int = within(0, SIZE, 0)

    def size(self) -> tuple[int, int] | None:
        p = self.params
        for h, w in ((p.crop_height, p.crop_width), (p.new_height, p.new_width)):
            if h and w:
                return h, w
        return None
