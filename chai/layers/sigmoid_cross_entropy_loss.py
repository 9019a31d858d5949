"""SigmoidCrossEntropyLoss: cross entropy of sigmoids."""

from __future__ import annotations

from ._training import TrainingLayer


class SigmoidCrossEntropyLoss(TrainingLayer):
    """Dropped at TEST."""
