"""pycaffe's interface on chai: ``import chai.pycaffe as caffe`` in place of ``import caffe``.

Everything here behaves as in Caffe's Python interface, except for the differences in docs/pycaffe.md. By default the
results are Caffe's: the device is "float" unless ``set_device_name``, CHAI_DEVICE or ``Net(..., device=)`` names another.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .. import layers as _types
from ..errors import UsageError
from ..plugins.python.caffe import Layer as Layer
from . import coord_map as coord_map, draw as draw, io as io, net_spec as net_spec, proto as proto
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
from .net_spec import NetSpec as NetSpec, layers as layers, params as params, to_proto as to_proto

__version__ = "1.0.0"  # of the interface

_TRAINING = (
    *(f"{n}Solver" for n in ("", "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")),
    *("get_solver", "NCCL", "Timer", "init_log", "log", "set_multiprocess"),
    *("set_solver_count", "set_solver_rank", "solver_count", "solver_rank"),
)


def layer_type_list() -> list[str]:
    """Return the names of all layer types, Python among them, in alphabetical order."""
    return sorted([*_types.types(), "Python"], key=str.lower)


def has_nccl() -> bool:
    """Return whether several GPUs can train together: never."""
    return False


def __getattr__(name: str) -> Any:
    if name in _TRAINING:

        def call(*_: Any, **__: Any) -> NoReturn:
            raise UsageError(f"{name}: chai runs networks, it does not train them")

        return call
    raise AttributeError(f"module 'chai.pycaffe' has no attribute {name!r}")
