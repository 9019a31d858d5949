"""Custom layers: ``@chai.custom``, its registry, and the loading of custom code.

definition   a layer type: functions, options, arguments
arguments    values of named arguments, from the prototxt
registry     types by name, global and per network
loading      files and packages that define types
compiling    numba, its cache on disk, and plain Python without numba
selection    choice of an implementation; autotune
fields       the fields of x
frame        calls on inputs of one set of sizes
layer        the Layer in a Graph
failure      errors for users when custom code fails
opencl       layers whose kernels are in OpenCL, in a process of their own
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_NAMES = {
    "definition": "CustomType",
    "fields": "CustomParams",
    "layer": "CustomEntry CustomLayer make",
    "loading": "Extension Sources load_custom load_named load_packages load_shipped places registry_of",
    "registry": "REGISTRY Registry custom shape",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

if TYPE_CHECKING:
    from .definition import CustomType as CustomType
    from .fields import CustomParams as CustomParams
    from .layer import CustomEntry as CustomEntry, CustomLayer as CustomLayer, make as make
    from .loading import (
        Extension as Extension,
        Sources as Sources,
        load_custom as load_custom,
        load_named as load_named,
        load_packages as load_packages,
        load_shipped as load_shipped,
        places as places,
        registry_of as registry_of,
    )
    from .registry import REGISTRY as REGISTRY, Registry as Registry, custom as custom, shape as shape


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'chai.plugins' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value
