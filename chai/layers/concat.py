"""Concat: blobs joined along an axis."""

from __future__ import annotations

from collections.abc import Mapping

from .. import kernels
from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import MessageFields, axis_index, within
from ..kernels.native import NativeLayer
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from ..util.rounding import round_up
from ._pick import channels_refused, pick_channels, picks, writing


class Concat(Layer):
    """All other axes must agree."""

    new_tops = True
    bottoms_allowed = (1, None)
    merges_formats = True

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
