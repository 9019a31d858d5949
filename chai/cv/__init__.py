"""OpenCV's calls for layers in Python, for scripts that used cv2.dnn with Caffe's networks."""

from __future__ import annotations

from chai.plugins.python.opencv import (
    dnn_registerLayer as dnn_registerLayer,
    dnn_unregisterLayer as dnn_unregisterLayer,
)
