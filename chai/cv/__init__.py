"""OpenCV's calls for Caffe's networks: ``import chai.cv as cv`` in place of ``import cv2 as cv``.

``cv.dnn`` reads and runs networks with chai, ``dnn_registerLayer`` takes layers in Python. All other names, such as imread
and VideoCapture, are those of cv2, if it is installed.
"""

from __future__ import annotations

from typing import Any

from chai.plugins.python.opencv import (
    dnn_registerLayer as dnn_registerLayer,
    dnn_unregisterLayer as dnn_unregisterLayer,
)

from . import dnn as dnn
from .dnn import own


def __getattr__(name: str) -> Any:
    return own("cv2", __name__, name)
