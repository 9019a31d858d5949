"""ShuffleChannel: channels interleaved across groups."""

from __future__ import annotations

from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import size
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from ._pick import channels_refused, pick_channels, picks


class ShuffleChannel(Layer):
    """Channels form a table of ``group`` rows, read column by column: 6 channels in 3 groups give 0 2 4 1 3 5."""

    fork = "farmingyard/ShuffleNet"
    follows = keeps_sign = True

    @dataclass(frozen=True)
    class Params:
        """The number of groups of channels in the bottom."""

        group: int = size(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        if len(shape) < 2 or shape[1] % self.params.group:
            raise self.wrong(f"the channels of {show(shape)} cannot be divided into {self.params.group} groups")
        return (shape,)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms[0]) != 4:
            return f"a blob of {len(bottoms[0])} axes"
        return channels_refused(self, overlay, bottoms[0], bottoms[0][1]) if picks(overlay) else self.without_unit

    def lower(self, target: Arithmetic) -> list[Task]:
        bottom, top = self.bottoms[0], self.tops[0]
        order = np.arange(target.shapes[bottom][1]).reshape(self.params.group, -1).T.reshape(-1)
        return [pick_channels(self, target, bottom, top, order)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        n, c, *rest = x.shape
        return (x.reshape(n, self.params.group, c // self.params.group, *rest).swapaxes(1, 2).reshape(x.shape),)
