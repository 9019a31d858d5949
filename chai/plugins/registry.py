"""Registry of custom types by name, and the decorator that adds to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import layers
from ..errors import PluginError
from ..util.keywords import method_of
from ..util.paths import resource
from ..util.sharing import Resources
from .definition import CustomType, Declaration, Definition, Function, plain_type, type_name


class Registry:
    """Custom types by name; a network may have its own that shadow the global ones.

    ``strict``  apply CHaiDNN's limits: one top, not in place
    """

    def __init__(
        self,
        own: Mapping[str, Function | Definition] | None = None,
        parent: Registry | None = None,
        strict: bool = False,
    ) -> None:
        self.types: dict[str, Definition] = {}
        self.shapes: dict[str, Function] = {}  # shape functions of types that are not defined in Python
        self.files: dict[Path, tuple[int, tuple[str, ...]]] = {}  # loaded files: time stamp, types defined there
        self.folders: list[Path] = []  # where Python layers are looked for, by the module that they name
        self.modules: Mapping[str, ModuleType] = {}  # likewise, modules that are imported
        self.named: dict[Path, tuple[Path, ...]] = {}  # files that a loaded file names: an XML file its kernels
        self.parent = parent
        self.resources = Resources()  # of the layers of this network
        self.strict = strict
        if own:
            self.types.update((type, plain_type(type, function)) for type, function in own.items())

    def register(self, custom: Definition, replace: bool = False) -> None:
        """Add a type.

        A second definition is refused, unless it comes from the same file or an interactive session (a reload),
        ``replace`` is set, or one of the two is an example shipped with chai: then the user's is used.
        """
        before = self.types.get(custom.type)
        if before is not None and not replace and not _reloads(before, custom):
            if _shipped(custom.place):
                return
            if not _shipped(before.place):
                raise PluginError(
                    f"custom type {custom.type!r} is defined twice: {before.place} and {custom.place}",
                    hint="to take the second: @chai.custom(..., replace=True)",
                )
        self.types[custom.type] = custom

    def unregister(self, type: str) -> None:
        """Remove a type; loaded networks keep it. Raises PluginError if there is none."""
        if self.types.pop(type, None) is None:
            raise PluginError(f"there is no custom type {type!r}", hint="registered: " + ", ".join(self.known()))

    def find(self, type: str) -> Definition | None:
        """Return the definition of a type, the network's own first."""
        definition = self.types.get(type)
        return definition if definition or self.parent is None else self.parent.find(type)

    def shape_rule(self, type: str) -> Function | None:
        """Return the function of ``chai.shape`` for a type, the network's own first."""
        rule = self.shapes.get(type)
        return rule if rule or self.parent is None else self.parent.shape_rule(type)

    def known(self) -> list[str]:
        """Return the names of all types, of the parent too."""
        return sorted({*self.types, *(self.parent.known() if self.parent else ())})

    def overrides(self, type: str) -> bool:
        """Return whether a custom type also computes layers of a built-in type that are not flagged.

        The network's own definitions do, unless their option ``override`` is False.
        """
        custom = self.find(type)
        if custom is None:
            return False
        own = self.parent is not None and type in self.types
        return own if custom.options.override is None else custom.options.override


def _reloads(before: Definition, now: Definition) -> bool:
    first, second = (place.rpartition(":")[0] for place in (before.place, now.place))
    return first == second or all("ipykernel" in p or p.startswith("<") for p in (first, second))


def _shipped(place: str) -> bool:
    return place.startswith(f"{resource('custom')}{os.sep}")


REGISTRY = Registry()
_file_target: ContextVar[tuple[str, Registry]] = ContextVar("_file_target")


@contextmanager
def registering(module: str, target: Registry) -> Iterator[None]:
    """Register the types of ``module`` in ``target``; modules that it imports still register globally."""
    token = _file_target.set((module, target))
    try:
        yield
    finally:
        _file_target.reset(token)


def enter(definition: Definition, replace: bool = False) -> None:
    """Register what a decorator has made: for the network that loads its file, else for all.

    Raises PluginError for a built-in type without ``override``.
    """
    if definition.options.override is None and layers.find(definition.type) is not None:
        raise PluginError(
            f"{definition.place}: custom type {definition.type!r}: chai has a type of that name, which would run instead",
            hint="override=True takes all its layers, override=False those that are flagged user_defined_layer",
        )
    _target(definition.function).register(definition, replace)


def _target(function: Function) -> Registry:
    module, target = _file_target.get(("", REGISTRY))
    return target if getattr(function, "__module__", None) == module else REGISTRY


def shape(type: str) -> Callable[[Function], Function]:
    """Register the decorated function as the shape function of a custom type that is not defined in Python.

    ``@chai.shape("ReorgYolo")`` before ``def f(x, stride)``: as ``@f.shape`` of ``@chai.custom``, for a type of an XML file.
    It may be registered before the type. Raises PluginError, when a network is loaded, for parameters that the type lacks.
    """

    type_name(type, "shape")

    def register(function: Function) -> Function:
        _target(function).shapes[type] = function
        return function

    return register


# Other ways to define a type, ``chai.custom.NAME``, and the modules that have them.
FORMS: Mapping[str, str] = {
    "compose": ".composed",
    "cvlayer": ".python.opencv",
    "opencl": ".opencl.functions",
    "vitis": ".python.vitis",
}


class Custom:
    """The decorator ``@chai.custom(type)``, and the other ways to define a type as its attributes (FORMS)."""

    @method_of(Declaration)
    def __call__(self, declaration: Declaration) -> Callable[[Function], CustomType]:
        """Register the decorated function as the custom layer of a prototxt ``type``.

        The function takes one xChangeLayer, writes its tops into ``x.out_ptrs`` (or ``x.top``) and returns nothing. It may
        be a method, with self before x.

        ``jit``        compile with numba (default); False runs plain Python, for numpy and any other library. A function that
                       is a numba dispatcher already keeps its own options
        ``args``       named arguments {name: default}, passed to the parameters of these names after x (arguments.py)
        ``scratch``    working memory {name: shape, or function of x and named arguments}: float32 arrays, passed by name
        ``layout``     "NCHW" or "NHWC": layout of bottoms and tops of four axes
        ``dtype``      "float32" or "float16" (with jit=False); for codes of the overlay see ``@f.impl``
        ``inplace``    tops are copies of the bottoms before the call
        ``fuse``       ("ReLU",): the function itself applies the ReLU after the layer if ``x.custom_reluflag`` is 1
        ``override``   required for a built-in type: True computes all its layers, False only those flagged
                       user_defined_layer
        ``parallel``, ``fastmath``, ``boundscheck``   as in numba; parallel kernels run one at a time. The default of fastmath
                       allows vectorised sums and keeps the meaning of NaN and infinity
        ``max_threads``   maximum number of threads of a parallel kernel
        ``per_image``  called once per image, with a batch of one
        ``elementwise``  each number of the top depends on that number of the bottom alone: an overlay may look it up
        ``ports``      2: CHaiDNN's numbering, bottom i at in_ptrs[2*i]
        ``version``    of the layer; shown by ``chai layers``
        ``output``     "scores", "boxes" or "map": the kind of its top as an output of the network, if its shape is ambiguous
        ``replace``    replace a definition in another file

        Raises PluginError with the function's place for invalid options.
        """

        def register(function: Function) -> CustomType:
            custom_type = CustomType(declaration.type, function, declaration.jit, declaration)
            enter(custom_type, declaration.replace)
            return custom_type

        return register

    def __getattr__(self, name: str) -> Any:
        if name not in FORMS:
            raise AttributeError(f"chai.custom has no form {name!r}, only {', '.join(FORMS)}")
        return getattr(import_module(FORMS[name], __package__), name)


custom = Custom()
