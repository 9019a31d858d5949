"""ContrastiveLoss: distance loss of pairs."""

from __future__ import annotations

from ._training import TrainingLayer


class ContrastiveLoss(TrainingLayer):
    """Dropped at TEST."""
