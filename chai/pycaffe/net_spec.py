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
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import UsageError
from ..parser.assign import layer_message
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
            raise UsageError(f"{type_name}: in_place with {len(inputs)} inputs and {self.ntop} tops")
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


class _Writer:
    """The layers of a network in order, each after its bottoms."""

    def __init__(self, names: Mapping[Top | Function, str]) -> None:
        self.names = dict(names)
        self.messages: dict[Function, Any] = {}
        self._numbers: Counter[str] = Counter()

    def add(self, function: Function) -> None:
        """Add a layer, and before it the layers it depends on."""
        stack = [function]
        while stack:
            waiting = [top.fn for top in stack[-1].inputs if top.fn not in self.messages]
            if waiting:
                stack.append(waiting[0])
                continue
            done = stack.pop()
            if done not in self.messages:
                self.messages[done] = self._message(done)

    def _message(self, function: Function) -> Any:
        bottoms = [self.messages[top.fn].top[top.n] for top in function.inputs]
        tops = bottoms if function.in_place else [self._name(top, function) for top in function.tops]
        params = dict(function.params)
        name = params.pop("name", None) or self._name(function.tops[0] if function.tops else function, function)
        return layer_message(function.type_name, name, bottoms, tops, params)

    def _name(self, named: Top | Function, function: Function) -> str:
        if named not in self.names:
            self._numbers[function.type_name] += 1
            self.names[named] = f"{function.type_name}{self._numbers[function.type_name]}"
        return self.names[named]


def to_proto(*tops: Top | Function) -> Any:
    """Return a caffe_pb2.NetParameter of the layers that these tops depend on, with names made up.

    Raises UsageError for a parameter that the layer does not have.
    """
    return _written(tops, {})


def _written(tops: Any, names: Mapping[Top | Function, str]) -> Any:
    writer = _Writer(names)
    for top in tops:
        writer.add(top.fn if isinstance(top, Top) else top)
    net = caffe_pb2.NetParameter()
    net.layer.extend(writer.messages.values())
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

    def update(self, other: NetSpec | Mapping[str, Top]) -> None:
        """Take the tops of another NetSpec."""
        self.tops.update(other.tops if isinstance(other, NetSpec) else other)

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
