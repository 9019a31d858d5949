"""MultiBoxLoss: SSD's loss of boxes and classes."""

from __future__ import annotations

from ._training import TrainingLayer


class MultiBoxLoss(TrainingLayer):
    """Dropped at TEST."""
