"""SegmentationEvaluate: agreement of segmented areas."""

from __future__ import annotations

from ._training import TrainingLayer


class SegmentationEvaluate(TrainingLayer):
    """Dropped at TEST."""

    fork = "eric612/MobileNet-YOLO"
