"""Custom layers: ``@chai.custom``, the registry behind it, and where custom code is loaded from.

definition   one layer type as its author wrote it: functions, options, arguments
arguments    values of named arguments, from the prototxt
registry     types by name, global and per network
loading      files and packages that define types
compiling    numba, its cache on disk, and life without it
selection    which implementation runs, and why; autotune
layer        the Layer that a Graph holds
failure      what a user is told when custom code goes wrong
"""

from __future__ import annotations

from .definition import CustomType as CustomType
from .layer import CustomLayer as CustomLayer, CustomParams as CustomParams
from .loading import Extension as Extension, load_all as load_all, load_custom as load_custom, places as places
from .registry import REGISTRY as REGISTRY, Registry as Registry, custom as custom
