"""Blobs whose channels are in another order, in pieces, or joined.

Concat: blobs joined along an axis.
ShuffleChannel: channels interleaved across groups.
Slice: a blob cut into pieces along an axis.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from .. import kernels
from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields, axis_index, size, within
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ._pick import channels_refused, pick_channels, picks, writing


class Concat(Layer):
    """All other axes must agree."""

    new_tops = merges_formats = True
    bottoms_allowed = (1, None)

    class Params(MessageFields):
        """concat_dim is the old name of axis."""

        axis: int = axis_index(1)
        concat_dim: int | None = within(0, 31)

    def along(self, shape: Shape) -> int:
        """Return the axis along which blobs are joined."""
        legacy = self.params.concat_dim
        return self.axis(self.params.axis if legacy is None else legacy, shape)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        along = self.along(bottoms[0])
        first = bottoms[0]
        for i, shape in enumerate(bottoms):
            if shape[:along] != first[:along] or shape[along + 1 :] != first[along + 1 :] or len(shape) != len(first):
                raise self.wrong(
                    f"bottom {i} is {show(shape)}, bottom 0 is {show(first)}; they may differ on axis {along} only"
                )
        return ((*first[:along], sum(s[along] for s in bottoms), *first[along + 1 :]),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if self.along(bottoms[0]) != 1 or len(bottoms[0]) != 4:
            return "only channels can be concatenated by address"
        first, step = 0, self.channel_step(overlay)
        for bottom in bottoms:
            if first % step and not picks(overlay):
                return f"a branch would begin at channel {first}, not at a multiple of {step}"
            first += bottom[1]
        written = first
        if any(bottom[1] % step for bottom in bottoms[:-1]):
            written = sum(round_up(bottom[1], step) for bottom in bottoms)
            if reason := channels_refused(self, overlay, (bottoms[0][0], written, *bottoms[0][2:]), first):
                return reason
        return self.beyond(overlay, "copy", size=max(bottoms[0][2:]), channels=written)

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return a Copy of each branch; if one begins within a word, into a blob with gaps, and a Task that closes the gaps."""
        top, step = self.tops[0], self.channel_step(target.overlay)
        sizes = [target.shapes[bottom][1] for bottom in self.bottoms]
        firsts = [sum(round_up(channels, step) for channels in sizes[:i]) for i in range(len(sizes))]
        if not any(channels % step for channels in sizes[:-1]):
            return [target.copy(self, *branch) for branch in zip(self.bottoms, firsts)]
        n, _, *size = target.shapes[top]
        apart = target.blob_between(top, "apart", (n, firsts[-1] + sizes[-1], *size), target.formats[top])
        branches = [target.copy(writing(self, apart), *branch) for branch in zip(self.bottoms, firsts)]
        channels = [first + i for first, channels in zip(firsts, sizes) for i in range(channels)]
        return [*branches, pick_channels(self, target, apart, top, channels)]

    def channels_from(self, bottom: str, shapes: Mapping[str, Shape]) -> int | None:
        if self.bottoms.count(bottom) != 1 or self.along(shapes[bottom]) != 1:
            return None
        return sum(shapes[b][1] for b in self.bottoms[: self.bottoms.index(bottom)])

    def native(self, bottoms: tuple[Shape, ...], rectified: bool) -> NativeLayer | None:
        return kernels.floats.concat(bottoms, self.along(bottoms[0]))

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        return (np.concatenate(bottoms, self.along(bottoms[0].shape)),)


class ShuffleChannel(Layer):
    """Channels form a table of ``group`` rows, read column by column: 6 channels in 3 groups give 0 2 4 1 3 5."""

    fork = "farmingyard/ShuffleNet"
    follows = keeps_sign = True

    class Params(MessageFields):
        group: int = size(1)

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        if len(shape) < 2 or shape[1] % self.params.group:
            raise self.wrong(f"the channels of {show(shape)} cannot be divided into {self.params.group} groups")
        return (shape,)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if len(bottoms[0]) != 4:
            return f"a blob of {number_of(len(bottoms[0]), 'axis')}"
        return channels_refused(self, overlay, bottoms[0], bottoms[0][1]) if picks(overlay) else self.without_unit

    def lower(self, target: Arithmetic) -> list[Task]:
        bottom, top = self.bottoms[0], self.tops[0]
        order = np.arange(target.shapes[bottom][1]).reshape(self.params.group, -1).T.reshape(-1)
        return [pick_channels(self, target, bottom, top, order)]

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        x = bottoms[0]
        n, c, *rest = x.shape
        return (x.reshape(n, self.params.group, c // self.params.group, *rest).swapaxes(1, 2).reshape(x.shape),)


class Slice(Layer):
    """One top per piece."""

    tops_allowed = (1, None)
    keeps_format = True

    class Params(MessageFields):
        """slice_point: start of each piece but the first; without it the pieces are equal. slice_dim: old name of axis."""

        axis: int = axis_index(1)
        slice_point: tuple[int, ...] = within(0, 2**31 - 1, ())
        slice_dim: int | None = within(0, 31)

    def _cuts(self, shape: Shape) -> tuple[int, list[int]]:
        """Return the axis, and the start of each piece followed by the end of the last."""
        legacy = self.params.slice_dim
        along = self.axis(self.params.axis if legacy is None else legacy, shape)
        size, pieces = shape[along], len(self.tops)
        points = list(self.params.slice_point)
        if points:
            if len(points) != pieces - 1:
                raise self.wrong(f"{number_of(pieces, 'top')} need {pieces - 1} slice_point, found {len(points)}")
        elif size % pieces:
            raise self.wrong(f"axis {along} of {size} elements cannot be cut into {pieces} equal pieces")
        cuts = [0, *(points or range(size // pieces, size, max(1, size // pieces))), size]
        if any(b <= a for a, b in itertools.pairwise(cuts)):
            raise self.wrong(f"slice_point must rise between 0 and {size}, found {points}")
        return along, cuts

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape = bottoms[0]
        along, cuts = self._cuts(shape)
        return tuple((*shape[:along], b - a, *shape[along + 1 :]) for a, b in itertools.pairwise(cuts))

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        along, cuts = self._cuts(bottoms[0])
        if along != 1 or len(bottoms[0]) != 4:
            return "only channels can be sliced by address"
        step = self.channel_step(overlay)
        odd = [(first, end) for first, end in itertools.pairwise(cuts) if first % step]
        if odd and not picks(overlay):
            return f"a piece would begin at channel {odd[0][0]}, not at a multiple of {step}"
        reasons = (channels_refused(self, overlay, bottoms[0], end - first) for first, end in odd)
        return next(filter(None, reasons), None) or self.beyond(
            overlay, "copy", size=max(bottoms[0][2:]), channels=bottoms[0][1]
        )

    def lower(self, target: Arithmetic) -> list[Task]:
        """Return a Task for each piece that begins within a word of channels; the others are views."""
        bottom, step = self.bottoms[0], self.channel_step(target.overlay)
        cuts = self._cuts(target.shapes[bottom])[1]
        pieces = zip(self.tops, itertools.pairwise(cuts))
        return [pick_channels(self, target, bottom, top, range(*piece)) for top, piece in pieces if piece[0] % step]

    def parts(self, bottom: Shape) -> dict[str, int]:
        return dict(zip(self.tops, self._cuts(bottom)[1]))

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        along, cuts = self._cuts(bottoms[0].shape)
        return tuple(np.ascontiguousarray(part) for part in np.split(bottoms[0], cuts[1:-1], along))
