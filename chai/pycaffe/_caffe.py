"""Names of Caffe's compiled module, for programs that ask for ``caffe._caffe.BlobVec`` and the like."""

from __future__ import annotations

from typing import Any, NoReturn

from .. import layers as _types
from ..errors import UsageError
from ..plugins.python.blob import BlobVec as BlobVec
from ..plugins.python.caffe import Layer as Layer
from .arguments import missing
from .blob import Blob as Blob
from .mode import (
    init_log as init_log,
    log as log,
    set_device as set_device,
    set_mode_cpu as set_mode_cpu,
    set_mode_gpu as set_mode_gpu,
    set_random_seed as set_random_seed,
)
from .net import Net as Net

_TRAINING = (
    *(f"{n}Solver" for n in ("", "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")),
    *("get_solver", "NCCL", "Timer", "set_multiprocess"),
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
    raise missing("pycaffe", name)
