"""Power: (shift + scale * x) ^ power."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph import Layer
from ..util.lazy_dataclass import dataclass
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array


@dataclass(frozen=True)
class PowerParams:
    """The defaults make it the identity."""

    power: float = 1.0
    scale: float = 1.0
    shift: float = 0.0


class Power(Layer):
    """Element by element."""

    message = "power_param"
    Params = PowerParams

    def forward(self, *bottoms: Array) -> tuple[Array, ...]:
        p = self.params
        y = np.float32(p.scale) * bottoms[0] + np.float32(p.shift)
        return (y if p.power == 1 else y ** np.float32(p.power),)
