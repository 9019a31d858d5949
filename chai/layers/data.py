"""Data: images from an LMDB or LevelDB."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph.params import within
from ..graph.source import DataSource


class Data(DataSource):
    """Its first top becomes an input; crop_size, if given, is its height and width."""

    message = "data_param"

    @dataclass(frozen=True)
    class Params:
        """The batch size of a training net; at run time the caller's array sets it."""

        batch_size: int | None = within(1, 2**31 - 1)
