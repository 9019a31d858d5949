"""YoloSeg: a segmentation loss."""

from __future__ import annotations

from ._training import TrainingLayer


class YoloSeg(TrainingLayer):
    """Dropped at TEST."""

    fork = "eric612/MobileNet-YOLO"
