"""DetectionEvaluate: SSD's true and false positives."""

from __future__ import annotations

from ._training import TrainingLayer


class DetectionEvaluate(TrainingLayer):
    """Dropped at TEST."""
