"""YoloV3Loss: the loss of YOLOv3."""

from __future__ import annotations

from ._training import TrainingLayer


class YoloV3Loss(TrainingLayer):
    """Dropped at TEST."""

    fork = "foss-for-synopsys-dwc-arc-processors/synopsys-caffe"
