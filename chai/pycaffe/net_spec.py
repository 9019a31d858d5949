"""NetSpec: networks written in Python, ``from chai.pycaffe import layers as L, params as P``.

>>> n = NetSpec()
>>> n.data = L.Input(shape={"dim": [1, 3, 8, 8]})
>>> n.conv = L.Convolution(n.data, kernel_size=3, num_output=8, weight_filler={"type": "xavier"})
>>> n.relu = L.ReLU(n.conv, in_place=True)
>>> print(n.to_proto())

A layer has the name of the attribute that its top was assigned to, else its type and a number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import UsageError
from ..parser.assign import assign, layer_message
from ..text import number_of
from .proto import caffe_pb2


class NotATop(UsageError, TypeError):
    """A bottom that is no top of another layer."""


class Function:
    """One layer before it has a name: its type, its bottoms (``inputs``), its parameters and its ``tops``."""

    def __init__(self, type_name: str, inputs: tuple[Top, ...], params: Mapping[str, Any]) -> None:
        for i, top in enumerate(inputs):
            if not isinstance(top, Top):
                raise NotATop(f"{type_name} input {i} is not a Top (type is {type(top)})")  # Caffe's words
        self.type_name = type_name
        self.inputs = inputs
        self.params = dict(params)
        self.ntop: int = self.params.pop("ntop", 1)
        self.in_place: bool = self.params.pop("in_place", False)
        if self.in_place and self.ntop != len(inputs):
            raise UsageError(
                f"{type_name}: in_place with {number_of(len(inputs), 'input')} and {number_of(self.ntop, 'top')}"
            )
        self.tops = tuple(Top(self, i) for i in range(self.ntop))

    def to_proto(self) -> Any:
        """Return the NetParameter of this layer and all that it depends on."""
        return to_proto(self)


class Top:
    """Top number ``n`` of a layer ``fn``."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> Any:
        """Return the NetParameter of its layer and all that this depends on."""
        return to_proto(self)


def to_proto(*tops: Top | Function) -> Any:
    """Return a caffe_pb2.NetParameter of the layers that these tops depend on, with names made up.

    Raises UsageError for a parameter that the layer does not have.
    """
    for top in tops:
        if not isinstance(top, (Top, Function)):
            raise NotATop(f"to_proto: {top!r} is not a Top (type is {type(top)})")
    return _written(tops, {})


def _written(tops: Iterable[Top | Function], names: dict[Top | Function, str]) -> Any:
    """Return the NetParameter of the layers that tops depend on, each after its bottoms; ``names`` gets names made up."""
    messages: dict[Function, Any] = {}
    numbers: Counter[str] = Counter()

    def name_of(named: Top | Function, type_name: str) -> str:
        if named not in names:
            numbers[type_name] += 1
            names[named] = f"{type_name}{numbers[type_name]}"
        return names[named]

    stack = [top.fn if isinstance(top, Top) else top for top in tops][::-1]
    while stack:
        waiting = [top.fn for top in stack[-1].inputs if top.fn not in messages]
        if waiting:
            stack.append(waiting[0])
            continue
        layer = stack.pop()
        if layer not in messages:
            bottoms, params = [messages[top.fn].top[top.n] for top in layer.inputs], dict(layer.params)
            written = bottoms if layer.in_place else [name_of(top, layer.type_name) for top in layer.tops]
            name = params.pop("name", None) or name_of(layer.tops[0] if layer.tops else layer, layer.type_name)
            by_name = {field: params.pop(field) for field in ("bottom", "top") if field in params}
            messages[layer] = layer_message(layer.type_name, name, bottoms, written, params)
            for field, blobs in by_name.items():  # after those of ``inputs``
                assign(messages[layer], field, blobs)
    net = caffe_pb2.NetParameter()
    net.layer.extend(messages.values())
    return net


class NetSpec:
    """A network: tops by name, as attributes or items. ``tops`` has them in order."""

    tops: dict[str, Top | Function]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, value: Top | Function) -> None:
        self.tops[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.tops:
            raise AttributeError(f"this NetSpec has no top {name!r}")
        return self.tops[name]

    __setitem__ = __setattr__

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def __delattr__(self, name: str) -> None:
        del self.tops[name]

    __delitem__ = __delattr__

    def keys(self) -> list[str]:
        """Return the names, in order."""
        return list(self.tops)

    def vals(self) -> list[Any]:
        """Return the tops, in order."""
        return list(self.tops.values())

    def update(self, name: str | NetSpec | Mapping[str, Top], params: Mapping[str, Any] | None = None) -> None:
        """Give the layer of a top further parameters, as in SSD's Caffe; or take the tops of another NetSpec."""
        if isinstance(name, str):
            top = self[name]
            (top.fn if isinstance(top, Top) else top).params.update(params or {})
        else:
            self.tops.update(name.tops if isinstance(name, NetSpec) else name)

    def to_proto(self) -> Any:
        """Return a caffe_pb2.NetParameter. Raises UsageError for a parameter that its layer does not have."""
        for name, top in self.tops.items():
            if not isinstance(top, (Top, Function)):
                raise NotATop(f"n.{name} is not a Top (type is {type(top)})")
        return _written(self.tops.values(), {top: name for name, top in self.tops.items()})


class Layers:
    """``L``: ``L.Convolution(n.data, num_output=8)`` makes a layer of any type and returns its top.

    ``ntop`` is the number of tops: with another one than 1 they are returned as a tuple, with 0 the layer itself.
    ``in_place=True`` writes into its bottom.
    """

    def __getattr__(self, type_name: str) -> Callable[..., Any]:
        if type_name.startswith("__"):
            raise AttributeError(type_name)

        def layer(*inputs: Any, **params: Any) -> Any:
            function = Function(type_name, inputs, params)
            return function if function.ntop == 0 else function.tops[0] if function.ntop == 1 else function.tops

        return layer


class Params:
    """``P``: values of enums, ``P.Pooling.MAX``."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(caffe_pb2, f"{name}Parameter")


layers = Layers()
params = Params()
