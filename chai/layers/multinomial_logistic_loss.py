"""MultinomialLogisticLoss: cross entropy of given probabilities."""

from __future__ import annotations

from ._training import TrainingLayer


class MultinomialLogisticLoss(TrainingLayer):
    """Dropped at TEST."""
