"""ReLU6: min(max(x, 0) + negative_slope * min(x, 0), 6)."""

from __future__ import annotations

from dataclasses import dataclass

from .relu import ReLU


@dataclass(frozen=True)
class ReLU6Params:
    """negative_slope 0 is the plain ReLU6."""

    negative_slope: float = 0.0


class ReLU6(ReLU):
    """A separate type in MobileNet-YOLO."""

    message = "relu6_param"
    Params = ReLU6Params
    fork = "eric612/MobileNet-YOLO"

    @property
    def most(self) -> float:
        return 6.0
