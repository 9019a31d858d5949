"""HingeLoss: one-vs-all hinge loss."""

from __future__ import annotations

from ._training import TrainingLayer


class HingeLoss(TrainingLayer):
    """Dropped at TEST."""
