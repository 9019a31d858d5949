"""chai: run Caffe and ONNX networks on FPGA overlays.

>>> import chai
>>> net = chai.Net("digits")
>>> net.forward(data=images)["prob"].argmax(1)      # images: float32 (N, 1, 8, 8)

Names are loaded when they are first used, so ``import chai`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # typing is not imported: it would take half of the time of ``chai --help``

__version__ = "0.2.0.dev0"

_HOME = {
    "Net": "net",
    "PerfInfo": "runtime.perf",
    "getPerfInfo": "runtime.perf",
    "custom": "plugins.registry",
    "from_torch": "pytorch",
    "cv": "",
    "load_custom": "plugins.loading",
    "shape": "plugins.registry",
    "check_custom": "evaluate.check_custom",
    "run_layer": "evaluate.replay",
    "xChangeLayer": "plugins.xchange",
    "Pictures": "images.pictures",
    "Preprocess": "images.preprocess",
    "video": "frames.playing",
    **dict.fromkeys(
        (
            "ChaiError",
            "ParseError",
            "ModelError",
            "UnknownLayer",
            "UnsupportedNodes",
            "ShapeError",
            "MissingWeights",
            "DeviceError",
            "FetchError",
            "PluginError",
            "UsageError",
        ),
        "errors",
    ),
}
__all__ = sorted([*_HOME, "__version__"])

if TYPE_CHECKING:
    from typing import Any

    from . import cv as cv
    from .errors import (
        ChaiError as ChaiError,
        DeviceError as DeviceError,
        FetchError as FetchError,
        MissingWeights as MissingWeights,
        ModelError as ModelError,
        ParseError as ParseError,
        PluginError as PluginError,
        ShapeError as ShapeError,
        UnknownLayer as UnknownLayer,
        UnsupportedNodes as UnsupportedNodes,
        UsageError as UsageError,
    )
    from .evaluate.check_custom import check_custom as check_custom
    from .evaluate.replay import run_layer as run_layer
    from .frames.playing import video as video
    from .images.pictures import Pictures as Pictures
    from .images.preprocess import Preprocess as Preprocess
    from .net import Net as Net
    from .plugins.loading import load_custom as load_custom
    from .plugins.registry import custom as custom, shape as shape
    from .plugins.xchange import xChangeLayer as xChangeLayer
    from .pytorch import from_torch as from_torch
    from .runtime.perf import PerfInfo as PerfInfo, getPerfInfo as getPerfInfo


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'chai' has no attribute {name!r}")
    home = _HOME[name]
    with import_module(".util.interpreter", __name__).Uncollected():  # not at the top: chai --help does without
        value = getattr(import_module(f".{home}", __name__), name) if home else import_module(f".{name}", __name__)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
