"""Yolov3: the loss of YOLOv3."""

from __future__ import annotations

from ._training import TrainingLayer


class Yolov3(TrainingLayer):
    """Dropped at TEST."""

    fork = "eric612/MobileNet-YOLO"
