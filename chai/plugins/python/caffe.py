"""Caffe's Python layers: ``class L(caffe.Layer)`` with setup, reshape and forward.

One object of the class belongs to one layer of a network. setup is called once, reshape before each change of sizes and, as
in Caffe, before each forward. There it may give other sizes than it did for bottoms of these sizes before, as a layer does
that loads data: the pass is planned for them. Source: caffe/python_layer.hpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ...blob import Shape, show
from ...util.lazy_numpy import np
from ...util.sharing import Turn
from ..definition import CustomOptions, CustomType, type_of_class
from .blob import Blob, BlobVec

METHODS = ("setup", "reshape", "forward")
TURN = Turn("a Python layer of Caffe")  # code written for Caffe runs in one thread at a time


class NamedPhase(IntEnum):
    """TRAIN (0) or TEST (1); as text its name, by which Faster R-CNN's layers look up their settings."""

    TRAIN = 0
    TEST = 1

    def __str__(self) -> str:
        return self.name


class Layer:
    """Base class of a Python layer.

    ``param_str``   text of python_param
    ``phase``       TRAIN (0) or TEST (1)
    ``blobs``       trained parameters: setup adds them with ``self.blobs.add_blob(*sizes)``

    ``backward`` is never called.
    """

    param_str: str
    phase: NamedPhase
    blobs: BlobVec

    def __init__(self, _parameter: Any = None) -> None:
        """Do nothing; Caffe passes its LayerParameter, chai None."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Read ``param_str``. Called once, when the sizes of the bottoms are known."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Call ``top[i].reshape(...)`` for every top."""
        raise NotImplementedError(f"class {type(self).__name__} has no method reshape")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        """Write ``top[i].data`` from ``bottom[i].data``."""
        raise NotImplementedError(f"class {type(self).__name__} has no method forward")


def is_layer(value: Any) -> bool:
    """Return whether a value is a class of Python layers, of chai's caffe.Layer or of an installed Caffe's."""
    bases = value.__mro__[1:] if isinstance(value, type) else ()
    return any(b is Layer or (b.__name__ == "Layer" and b.__module__.partition(".")[0] == "caffe") for b in bases)


def type_of(cls: type, key: str, version: str = "") -> CustomType:
    """Return the custom type of a class of Python layers; ``key`` is module.class of python_param."""

    def forward(x: Any, param_str: str, phase: int) -> Any:
        return _object(x, cls, param_str, phase).forward(x, dynamic)

    def shape(x: Any, param_str: str, phase: int) -> list[Shape]:
        return TURN.run(lambda: _object(x, cls, param_str, phase).shapes(x))

    dynamic = _reshapes_tops(cls)
    options = CustomOptions(args={"param_str": "", "phase": 1}, override=False, version=version)
    custom = type_of_class(key, cls, METHODS, forward, options, shape)
    custom.dynamic, custom.renews, custom.bottoms_allowed = dynamic, not dynamic, (0, None)
    custom.turn, custom.renew = TURN, _renew
    return custom


class _CaffeObject:
    """The object of a user's class for one layer."""

    def __init__(self, cls: type, x: Any, param_str: str, phase: int) -> None:
        self.layer = _new(cls)
        self.layer.param_str = self.layer.param_str_ = param_str  # the latter: its name until 2014
        self.layer.phase = NamedPhase(phase)
        self.layer.blobs = BlobVec()
        self._params: Any = None
        tops = [Blob(np.zeros((), np.float32)) for _ in x.next]
        self.layer.setup(*_aliased(x, _empty(x.input_dims), tops))
        self._tops = [top.shape for top in tops]  # setup may have sized them, and reshape leave them
        self.sizes: tuple[list[Shape], list[Shape]] | None = None  # of bottoms and tops, after the last reshape

    def shapes(self, x: Any) -> list[Shape]:
        """Return the shapes of the tops for bottoms of the sizes of x: of the last reshape, if that was for such bottoms.

        x gets the parameters that setup has added, unless a caffemodel has them.
        """
        if not x.n_params:
            x.custom_float_params = tuple(blob.data for blob in self.layer.blobs)
        bottoms = [*map(tuple, x.input_dims)]
        if self.sizes is None or self.sizes[0] != bottoms:
            return self._reshape(*_aliased(x, _empty(bottoms), _empty(self._tops)))
        return self.sizes[1]

    def _reshape(self, bottoms: list[Blob], tops: list[Blob]) -> list[Shape]:
        """Have the layer size its tops; return their shapes."""
        before = [bottom.shape for bottom in bottoms]
        self.sizes = None
        self.layer.reshape(bottoms, tops)
        sizes = [top.shape for top in tops]
        self.sizes = before, sizes
        return sizes

    def forward(self, x: Any, dynamic: bool) -> Any:
        """Compute the tops of x; return them if they are ``dynamic``, or of other sizes."""
        if self._params is not x.custom_float_params:
            self._take(x)
        bottoms, tops = [Blob(bottom) for bottom in x.bottom], [Blob(top) for top in x.top]
        for bottom, top in x.in_place:
            tops[top].data[...] = bottoms[bottom].data
        bottoms, tops = _aliased(x, bottoms, tops)
        sizes = self._reshape(bottoms, tops)
        self.layer.forward(bottoms, tops)
        if dynamic:
            return tuple(top.data for top in tops)
        for i, (blob, size) in enumerate(zip(tops, sizes)):
            if blob.shape != size:
                raise ValueError(
                    f"top {i} became {show(blob.shape)}, before forward reshape made it {show(size)}; "
                    "sizes that depend on data need top[i].reshape(...) in forward itself"
                )
        if any(size != top.shape for size, top in zip(sizes, x.top)):
            return tuple(top.data for top in tops)
        for blob, top in zip(tops, x.top):
            if not np.may_share_memory(blob.data, top):
                top[...] = blob.data
        return None

    def _take(self, x: Any) -> None:
        """Use the network's parameters, which a caffemodel may have replaced."""
        blobs = self.layer.blobs
        sizes = [blob.count for blob in blobs]
        if sizes != [param.size for param in x.custom_float_params]:
            raise ValueError(
                f"setup adds parameters of {sizes or 'no'} elements, "
                f"the caffemodel has {[param.size for param in x.custom_float_params] or 'none'}"
            )
        blobs[:] = [Blob(param.reshape(blob.shape)) for param, blob in zip(x.custom_float_params, blobs)]
        self._params = x.custom_float_params


def _object(x: Any, cls: type, param_str: str, phase: int) -> _CaffeObject:
    if "caffe" not in x.data:
        x.data["caffe"] = _CaffeObject(cls, x, param_str, phase)
    instance: _CaffeObject = x.data["caffe"]
    return instance


def _renew(data: dict[str, Any]) -> None:
    """Make ``shapes`` call reshape again."""
    data["caffe"].sizes = None


def _new(cls: type) -> Any:
    if issubclass(cls, Layer):
        return cls(None)
    # An installed Caffe's Layer is created from C++, and its blobs are read-only.
    kind: Any = type(cls)
    own = kind(cls.__name__, (cls,), {"blobs": None, "__module__": cls.__module__})
    return own.__new__(own)


def _empty(shapes: Any) -> list[Blob]:
    return [Blob(np.zeros(tuple(map(int, shape)), np.float32)) for shape in shapes]


def _aliased(x: Any, bottoms: list[Blob], tops: list[Blob]) -> tuple[list[Blob], list[Blob]]:
    """Return bottoms and tops with one Blob for a top that is in place."""
    for bottom, top in x.in_place:
        if tops[top].shape != bottoms[bottom].shape:
            tops[top] = bottoms[bottom]
        else:
            bottoms[bottom] = tops[top]
    return bottoms, tops


def _reshapes_tops(cls: type) -> bool:
    """Return whether forward calls ``top[i].reshape``: the sizes of its tops depend on data."""
    import ast  # needed by networks with Python layers alone
    import inspect
    import textwrap

    forward: Any = getattr(cls, "forward", None)
    try:
        names = list(inspect.signature(forward).parameters)
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, ValueError, SyntaxError):  # code without a source
        return False
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Subscript(ast.Name(name)), "reshape")) if names[2:] == [name]:
                return True
    return False
