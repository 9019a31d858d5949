"""Layers of training nets that chai leaves out: writers, and losses and measures of forks.

DetectionEvaluate: SSD's true and false positives.
HDF5Output: blobs written to a file.
MultiBoxLoss: SSD's loss of boxes and classes.
SegmentationEvaluate: agreement of segmented areas.
YoloSeg: a segmentation loss.
YoloV3Loss: the loss of YOLOv3.
Yolov3: the loss of YOLOv3.
"""

from __future__ import annotations

from ..graph import Layer


class TrainingLayer(Layer):
    """Dropped with its tops, in phase TEST, too."""

    training_only = True
    skipped = True
    bottoms_allowed = (1, None)
    tops_allowed = (0, None)


class DetectionEvaluate(TrainingLayer):
    """Dropped at TEST."""


class HDF5Output(TrainingLayer):
    """Dropped at TEST."""


class MultiBoxLoss(TrainingLayer):
    """Dropped at TEST."""


class SegmentationEvaluate(TrainingLayer):
    fork = "eric612/MobileNet-YOLO"


class YoloSeg(TrainingLayer):
    fork = "eric612/MobileNet-YOLO"


class YoloV3Loss(TrainingLayer):
    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"


class Yolov3(TrainingLayer):
    fork = "eric612/MobileNet-YOLO"
