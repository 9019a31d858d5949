"""Definition of a composed layer type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import CO_VARARGS
from typing import Any, ClassVar

from ..arguments import is_size
from ..definition import CustomOptions, Definition, Function, parameters, type_name
from ..registry import enter


class ComposedType(Definition):
    """A type whose layers are made of other layers by a function of a Builder, the bottoms and named arguments.

    ``wanted``      the arguments that the function asks for
    ``bottoms``     names of its bottoms; the first ``least`` must be there, and with ``any_number`` there may be more
    """

    composed: ClassVar[bool] = True

    def __init__(self, type: str, function: Function, options: CustomOptions) -> None:
        super().__init__(type, function, options)
        sizes = [name for name, default in self.args.items() if is_size(default)]
        if sizes:
            raise self._bad(
                f"args: {sizes[0]}: sizes are not known when a composed layer is expanded",
                "a number of the prototxt, or a layer that reads the size of its bottom (Reshape, Flatten)",
            )
        code = getattr(function, "__code__", None)
        names = parameters(function)
        if code is None or not names:
            raise self._bad("it takes no argument, it is given a builder", "def f(g, x): return g.tanh(x)")
        self.any_number = bool(code.co_flags & CO_VARARGS)  # def f(g, *bottoms)
        keywords = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        unknown = [name for name in keywords if name not in self.args]
        if unknown:
            raise self._bad(f"it asks for {unknown[0]!r}, which is not in args", f"args={{{unknown[0]!r}: ...}}")
        positional = [name for name in names if name in self.args]
        if self.any_number and positional:
            raise self._bad(
                f"argument {positional[0]!r} comes before *{code.co_varnames[len(names) + len(keywords)]}",
                f"def f(g, *bottoms, {positional[0]})",
            )
        self.wanted = [name for name in (*names, *keywords) if name in self.args]
        self.bottoms = [name for name in names[1:] if name not in self.args]
        optional = names[len(names) - len(function.__defaults__ or ()) :]
        self.least = len([name for name in self.bottoms if name not in optional])


def compose(
    type: str,
    *,
    args: Mapping[str, Any] | None = None,
    override: bool | None = None,
    version: str = "",
    replace: bool = False,
) -> Callable[[Function], ComposedType]:
    """Register the decorated function as the composition of a layer of a prototxt ``type`` from other layers.

    The function takes a Builder, the layer's bottoms, and named arguments; it returns the top, or a tuple of tops:

    ``def cell(g, x, h): return g.tanh(g.inner_product(g.concat(x, h), num_output=7, blobs=(0, 1)))``

    A network is expanded when it is read: its parts are plain layers, named ``layer/inner_product``, which are folded,
    quantised and run on the overlay like all others.

    ``args``, ``override``, ``version``, ``replace``   as for ``@chai.custom``; no sizes ("I.X") among ``args``

    Raises PluginError with the function's place for invalid options.
    """

    type_name(type, "custom.compose")

    def register(function: Function) -> ComposedType:
        composed = ComposedType(type, function, CustomOptions(args=args, override=override, version=version))
        enter(composed, replace)
        return composed

    return register
