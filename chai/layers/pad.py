"""Pad: a blob with a border."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..blob import Array, Shape, show
from ..graph import Arithmetic, Layer
from ..graph.params import choice, margin
from ..overlay import Overlay
from ..tasks import Task
from ..util.lazy_numpy import np
from ._pick import border_refused, pick_pixels, picks


class Pad(Layer):
    """Every axis grows by its two paddings."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
    follows = True

    @dataclass(frozen=True)
    class Params:
        """paddings: before and after axis 0, before and after axis 1, ...; chai_mode: what is there instead of a constant."""

        paddings: tuple[int, ...] = margin(())
        constant_values: float = 0.0
        chai_mode: str = choice("CONSTANT", "REFLECT", "EDGE", "WRAP", default="CONSTANT")

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        paddings = self.params.paddings
        return list(zip(paddings[::2], paddings[1::2]))

    def shapes(self, *bottoms: Shape) -> tuple[Shape, ...]:
        shape, paddings = bottoms[0], self.params.paddings
        if len(paddings) != 2 * len(shape):
            raise self.wrong(f"{len(paddings)} paddings for {show(shape)}; expected two for each axis")
        for size, pair in zip(shape, self._pairs):
            most = {"REFLECT": size - 1, "WRAP": size}.get(self.params.chai_mode, max(pair))
            if max(pair) > most:
                raise self.wrong(
                    f"a padding of {max(pair)} of an axis of {size}; {self.params.chai_mode} has {most} at most"
                )
        return (tuple(d + before + after for d, (before, after) in zip(shape, self._pairs)),)

    def unsupported(self, overlay: Overlay, *bottoms: Shape) -> str | None:
        if not picks(overlay):
            return self.without_unit
        p = self.params
        if len(bottoms[0]) != 4 or p.chai_mode != "CONSTANT" or p.constant_values or any(p.paddings[:4]):
            return "it does more than zeros around rows and columns"
        return border_refused(self, overlay, bottoms[0], (self._pairs[2], self._pairs[3]))

    def lower(self, target: Arithmetic) -> list[Task]:
        return [pick_pixels(self, target, (self._pairs[2], self._pairs[3]))]

    def nonnegative(self, bottoms: Sequence[bool]) -> bool:
        return all(bottoms) and self.params.constant_values >= 0

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p, x = self.params, bottoms[0]
        pairs = self._pairs or 0  # numpy takes no list of none
        if p.chai_mode == "CONSTANT":
            return (np.pad(x, pairs, constant_values=np.float32(p.constant_values)),)
        return (np.pad(x, pairs, mode=p.chai_mode.lower()),)
