"""Accuracy: fraction of correct labels."""

from __future__ import annotations

from ._training import TrainingLayer


class Accuracy(TrainingLayer):
    """Dropped at TEST."""
