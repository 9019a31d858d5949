"""OpenCV's layers in Python: classes with getMemoryShapes and forward.

``__init__(self, params, blobs)`` gets the layer's parameters by name and its trained ones as arrays;
``getMemoryShapes(self, inputs)`` returns a shape per top; ``forward(self, inputs)`` an array per top. Source: OpenCV 4,
modules/dnn/misc/python/pyopencv_dnn.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ...util.sharing import Mutex
from ..definition import CustomOptions, type_name, type_of_class
from ..registry import REGISTRY, enter

T = TypeVar("T", bound=type)


def cvlayer(type: str, *, version: str = "", replace: bool = False) -> Callable[[T], T]:
    """Register the decorated class, which is written for OpenCV, as the layer of a prototxt ``type``.

    As in OpenCV it also computes the layers of a built-in type. ``params`` has the fields of the layer's ``*_param``: int,
    float and str, a tuple where a field is repeated; of a message that Caffe does not have, text. ``replace`` replaces a
    definition in another file. The class is returned unchanged. Raises PluginError if it lacks a method.
    """

    type_name(type, "custom.cvlayer")

    def register(cls: T) -> T:
        def forward(x: Any, params: Mapping[str, Any]) -> Any:
            return _object(x, cls, params).forward(x)

        def shape(x: Any, params: Mapping[str, Any]) -> Any:
            return _object(x, cls, params).shapes(x)

        options = CustomOptions(args={"params": dict}, override=True, version=version)
        enter(type_of_class(type, cls, ("getMemoryShapes", "forward"), forward, options, shape), replace)
        return cls

    return register


def dnn_registerLayer(type: str, layer: type) -> None:  # noqa: N802 - OpenCV's spelling
    """Register a class for the layers of a prototxt ``type``, in place of an earlier one: ``cv2.dnn_registerLayer``."""
    cvlayer(type, replace=True)(layer)


def dnn_unregisterLayer(type: str) -> None:  # noqa: N802
    """Remove the class that is registered for a ``type``; loaded networks keep it. Raises PluginError if there is none."""
    REGISTRY.unregister(type)


class _OpencvObject:
    """The object of a user's class for one layer with these trained parameters."""

    def __init__(self, cls: type, params: Mapping[str, Any], x: Any) -> None:
        fields = {name: int(value) if isinstance(value, bool) else value for name, value in sorted(params.items())}
        self.memory = _memory(x)
        self.params: Any = None  # custom_float_params of the first forward; replaced when they may have changed
        self.layer: Any = cls(fields, [x.param(i) for i in range(x.n_params)])
        self._sizes: list[list[int]] | None = None
        self._lock = Mutex()  # forward may use what getMemoryShapes has kept of the sizes

    def shapes(self, x: Any) -> Any:
        """Return the shapes of the tops of x."""
        with self._lock:
            self._sizes = _sizes(x)
            return self.layer.getMemoryShapes(_sizes(x))

    def forward(self, x: Any) -> Any:
        """Return the tops of x."""
        with self._lock:
            if self._sizes != _sizes(x):
                self.shapes(x)
            tops = self.layer.forward(list(x.bottom))
        return list(tops) if isinstance(tops, (list, tuple)) else tops


def _object(x: Any, cls: type, params: Mapping[str, Any]) -> _OpencvObject:
    """Return the layer's object; a new one if its trained parameters are others or may have been changed."""
    layer: _OpencvObject | None = x.data.get("opencv")
    running = len(x.bottom) > 0  # not asked for shapes
    if layer is not None and running and layer.params is None:
        layer.params = x.custom_float_params
    changed = layer is not None and running and layer.params is not x.custom_float_params
    if layer is None or changed or layer.memory != _memory(x):
        layer = x.data["opencv"] = _OpencvObject(cls, params, x)
        layer.params = x.custom_float_params if running else None
    return layer


def _sizes(x: Any) -> list[list[int]]:
    return [[int(d) for d in dims] for dims in x.input_dims]


def _memory(x: Any) -> list[tuple[int, int]]:
    return [(param.ctypes.data, param.size) for param in x.custom_float_params]
