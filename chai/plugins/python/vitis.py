"""Vitis AI's operations in Python: classes with calculate.

``__init__(self, op)`` gets the operation, ``calculate(self, output, input)`` a tensor buffer to write and a list of those
to read: the bottoms, then the trained parameters. Source: Vitis AI 2.5, cpu_task/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from ...blob import Array
from ..definition import CustomOptions, type_name, type_of_class
from ..registry import enter

T = TypeVar("T", bound=type)


def vitis(
    type: str, *, layout: str = "NHWC", override: bool | None = None, version: str = "", replace: bool = False
) -> Callable[[T], T]:
    """Register the decorated class, which is written for Vitis AI, as the layer of a prototxt ``type``.

    ``layout``     of tensors with four axes: "NHWC", as XIR has them, or "NCHW" for operations of PyTorch
    ``override``   as of ``@chai.custom``: needed for a built-in type

    The top has the first bottom's shape, unless the prototxt has a top_dim or ``@chai.shape(type)`` says otherwise. The
    class is returned unchanged. Raises PluginError if it lacks a method.
    """

    type_name(type, "custom.vitis")

    def register(cls: T) -> T:
        def calculate(x: Any, params: Mapping[str, Any]) -> None:
            if "vitis" not in x.data:
                attributes = {name: _attribute(value) for name, value in params.items()}
                x.data["vitis"] = cls(VitisOperation(x.layername, x.custom_layer_type, attributes))
            inputs = [_buffer(name, bottom) for name, bottom in zip(x.previous, x.bottom)]
            inputs += [_buffer(f"{x.layername}_{i}", x.param(i)) for i in range(x.n_params)]
            x.data["vitis"].calculate(_buffer(x.next[0], x.top[0]), inputs)

        options = CustomOptions(args={"params": dict}, layout=layout, override=override, version=version)
        custom = type_of_class(type, cls, ("calculate",), calculate, options)
        custom.tops_allowed, custom.first_shape = (1, 1), True
        enter(custom, replace)
        return cls

    return register


class VitisTensor:
    """Name, sizes and type of a tensor buffer."""

    def __init__(self, name: str, dims: Sequence[int], dtype: str) -> None:
        self.name, self.dims, self.ndim, self.dtype = name, [int(d) for d in dims], len(dims), dtype

    def get_element_num(self) -> int:
        return int(np.prod(self.dims))


class TensorBuffer(np.ndarray):  # numpy before 1.22 has no types in brackets
    """A tensor's memory, as an array and with ``get_tensor``."""

    name = ""

    def get_tensor(self) -> VitisTensor:
        """Return what it holds."""
        return VitisTensor(self.name, self.shape, str(self.dtype))


class VitisOperation:
    """The name, type and attributes of a layer; these are the fields of its ``*_param``."""

    def __init__(self, name: str, type: str, attributes: Mapping[str, Any]) -> None:
        self._name, self._type, self._attributes = name, type, dict(attributes)

    def get_name(self) -> str:
        return self._name

    def get_type(self) -> str:
        return self._type

    def has_attr(self, name: str) -> bool:
        """Return whether the prototxt gives an attribute."""
        return name in self._attributes

    def get_attr(self, name: str) -> Any:
        """Return an attribute: int, float, bool or str, or a list. Raises KeyError if the prototxt does not give it."""
        return self._attributes[name]

    def get_attrs(self) -> dict[str, Any]:
        return dict(self._attributes)


def _buffer(name: str, array: Array) -> TensorBuffer:
    buffer = array.view(TensorBuffer)
    buffer.name = name
    return buffer


def _attribute(value: Any) -> Any:
    """Return a field's value; text that is a number, of a message that Caffe does not have, as a number."""
    if isinstance(value, (tuple, list)):
        return [_attribute(v) for v in value]
    if not isinstance(value, str):
        return value
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return {"true": True, "false": False}.get(value, value)
