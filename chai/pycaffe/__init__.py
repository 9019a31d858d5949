"""pycaffe's interface on chai: ``import chai.pycaffe as caffe`` in place of ``import caffe``.

Everything here behaves as in Caffe's Python interface, except for the differences in docs/pycaffe.md. By default the
results are Caffe's: the device is "float" unless ``set_device_name``, CHAI_DEVICE or ``Net(..., device=)`` names another.
"""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import UsageError
from ..plugins.python.caffe import Layer as Layer
from . import io as io, proto as proto
from .blob import Blob as Blob
from .classifier import Classifier as Classifier
from .detector import Detector as Detector
from .mode import (
    set_device as set_device,
    set_device_name as set_device_name,
    set_mode_cpu as set_mode_cpu,
    set_mode_gpu as set_mode_gpu,
    set_random_seed as set_random_seed,
)
from .net import TEST as TEST, TRAIN as TRAIN, Net as Net

_SOLVERS = ("get_solver", *(f"{n}Solver" for n in ("", "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")))
_ABSENT = {
    "NetSpec": "networks are written as prototxts",
    "layers": "networks are written as prototxts",
    "params": "networks are written as prototxts",
}


def __getattr__(name: str) -> Any:
    if name in _SOLVERS:

        def solver(*_: Any, **__: Any) -> NoReturn:
            raise UsageError(f"{name}: chai runs networks, it does not train them")

        return solver
    hint = f" ({_ABSENT[name]})" if name in _ABSENT else ""
    raise AttributeError(f"module 'chai.pycaffe' has no attribute {name!r}{hint}")
