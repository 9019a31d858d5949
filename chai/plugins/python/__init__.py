"""Python code that the user named: how it is run, and layers that it defines as classes of other systems.

modules      runs files; finds what they import
caffe        classes for Caffe: ``class L(caffe.Layer)``
blob         their bottoms and tops
opencv       classes for OpenCV's cv2.dnn
vitis        classes for Vitis AI

Modules are loaded when they are first used: most networks have no such layer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import caffe as caffe, modules as modules


def __getattr__(name: str) -> Any:
    if name not in ("caffe", "modules"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f".{name}", __name__)
