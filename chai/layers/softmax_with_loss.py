"""SoftmaxWithLoss: cross entropy of a softmax."""

from __future__ import annotations

from ._training import TrainingLayer


class SoftmaxWithLoss(TrainingLayer):
    """Dropped at TEST."""
