"""ShuffleChannel: channels interleaved across groups."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Layer
from ..graph.params import size


class ShuffleChannel(Layer):
    """Channels form a table of ``group`` rows, read column by column: 6 channels in 3 groups give 0 2 4 1 3 5."""

    message = "shuffle_channel_param"
    fork = "farmingyard/ShuffleNet"

    @dataclass(frozen=True)
    class Params:
        """The number of groups of channels in the bottom."""

        group: int = size(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        if len(shape) < 2 or shape[1] % self.params.group:
            raise self.wrong(f"the channels of {show(shape)} cannot be divided into {self.params.group} groups")
        return (shape,)

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        n, c, *rest = x.shape
        return (x.reshape(n, self.params.group, c // self.params.group, *rest).swapaxes(1, 2).reshape(x.shape),)
