"""InfogainLoss: cross entropy weighted by a matrix."""

from __future__ import annotations

from ._training import TrainingLayer


class InfogainLoss(TrainingLayer):
    """Dropped at TEST."""
