"""Composed layers: types whose layers are made of other layers, ``@chai.custom.compose``.

The argument g of such a type's function is a Builder, which records the parts.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import CO_VARARGS
from typing import Any, ClassVar

from .. import layers
from ..errors import PluginError
from ..limits import limits
from ..text import number_of
from ..util.suggest import did_you_mean
from .arguments import is_size
from .definition import CustomOptions, Definition, Function, parameters, type_name
from .failure import RunningLayer, report, run
from .loading import lookup
from .registry import Registry, enter


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


class SymbolicBlob:
    """A bottom of a composed layer, or a top of one of its parts: what the methods of a Builder take and return."""

    def __init__(self, owner: Builder, name: str) -> None:
        self.owner = owner
        self.name = name

    def __repr__(self) -> str:
        return f"<blob {self.name!r}>"


@dataclass(frozen=True)
class ComposedPart:
    """One layer that a composed layer is made of.

    ``flagged``  whether a registered function computes it, not a built-in type
    ``blobs``    the trained parameters of the composed layer that it takes, by their indices
    ``fields``   its parameters, by name
    ``place``    path:line of the call that made it
    """

    name: str
    type: str
    bottoms: tuple[SymbolicBlob, ...]
    tops: tuple[SymbolicBlob, ...]
    flagged: bool
    blobs: tuple[int, ...]
    fields: Mapping[str, Any]
    place: str


class Builder:
    """Makes the parts of one composed layer.

    ``g.inner_product(x, num_output=7)`` adds a layer of type InnerProduct and returns its top: the name of a method is
    a type's in small letters, Caffe's or a custom one's. Its arguments are the bottoms; its keywords are the fields of
    the type's ``*_param`` message, whole messages (``param=[{"lr_mult": 0}]``), or

    ``name``   of the part (default: the method's, numbered from the second one on); its layer is ``layer/name``
    ``blobs``  indices of the composed layer's trained parameters that the part takes, in its order. Without it the
               caffemodel has those of the part under its own name
    ``ntop``   number of tops (default 1); a tuple is returned for any other number
    """

    def __init__(self, where: RunningLayer, types: Registry) -> None:
        self._where = where
        self._types = types
        self._parts: dict[str, ComposedPart] = {}
        self._used: Counter[str] = Counter()  # methods without a name of the user's

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method.startswith("_"):
            raise AttributeError(method)
        return partial(self._add, self._type(method), method)

    def layer(self, type: str, *bottoms: SymbolicBlob, **keywords: Any) -> Any:
        """Add a layer of a type whose name is no Python name, or that differs from another one's in case only."""
        return self._add(type, type, *bottoms, **keywords)

    def _add(
        self,
        type: str,
        method: str,
        *bottoms: SymbolicBlob,
        name: str | None = None,
        blobs: Sequence[int] = (),
        ntop: int = 1,
        **fields: Any,
    ) -> Any:
        if len(self._parts) == limits().layers:
            raise self._wrong("too many parts: " + limits().exceeded("layers", len(self._parts) + 1))
        strange = [b for b in bottoms if not isinstance(b, SymbolicBlob) or b.owner is not self]
        if strange:
            raise self._wrong(
                f"{method}: expected blobs of this layer as bottoms, found {strange[0]!r}",
                "parameters are keywords: g.inner_product(x, num_output=10)",
            )
        own = f"{self._where.layer}/{name if name is not None else self._free(method)}"
        if own in self._parts:
            raise self._wrong(f"two parts are called {name!r}", "name= gives a part another name")
        if not isinstance(ntop, int) or not 0 <= ntop <= limits().ports:
            raise self._wrong(f"ntop={ntop!r}: expected the number of tops")
        taken = tuple(blobs) if isinstance(blobs, (tuple, list)) else (blobs,)
        if not all(isinstance(index, int) and index >= 0 for index in taken):
            raise self._wrong(f"blobs={blobs!r}: expected indices from 0", "blobs=(0, 1): the first two")
        tops = tuple(SymbolicBlob(self, own if ntop == 1 else f"{own}_{i}") for i in range(ntop))
        flagged = self._types.overrides(type) or layers.find(type) is None
        self._parts[own] = ComposedPart(own, type, bottoms, tops, flagged, taken, fields, _caller())
        return tops[0] if ntop == 1 else tops

    def finished(
        self, result: Any, bottoms: Sequence[SymbolicBlob], tops: Sequence[str], place: str
    ) -> list[ComposedPart]:
        """Return the parts, after their blobs in ``result`` were given the names of the composed layer's tops."""
        results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        for blob in results:
            if not isinstance(blob, SymbolicBlob) or blob.owner is not self:
                raise self._wrong(f"it returned {blob!r}, expected a blob of this layer", place=place)
            if blob in bottoms or results.count(blob) > 1:
                what = "its bottom" if blob in bottoms else "twice"
                raise self._wrong(f"it returned {what} {blob!r}", "g.split(x) is a copy under another name", place)
        if len(results) != len(tops):
            raise self._wrong(
                f"it returned {number_of(len(results), 'blob')} for {number_of(len(tops), 'top')}", place=place
            )
        for blob, name in zip(results, tops):
            blob.name = name
        return list(self._parts.values())

    def _type(self, method: str) -> str:
        known = layers.spelled(method)
        custom = self._registered(method)
        if known is not None and (custom is None or not self._types.overrides(custom)):
            return known
        if custom is None:
            lookup(self._types, method)  # loads the shipped types, and those of installed packages
            custom = self._registered(method)
        if custom is None:
            names = [_plain(type) for type in (*layers.types(), *self._types.known())]
            raise self._wrong(f"there is no layer type {method!r}", did_you_mean(_plain(method), names))
        return custom

    def _registered(self, method: str) -> str | None:
        return next((type for type in self._types.known() if _plain(type) == _plain(method)), None)

    def _free(self, method: str) -> str:
        """Return the first unused one of method, method2, method3, ..."""
        while True:
            self._used[method] += 1
            name = method if self._used[method] == 1 else f"{method}{self._used[method]}"
            if f"{self._where.layer}/{name}" not in self._parts:
                return name

    def _wrong(self, reason: str, hint: str | None = None, place: str | None = None) -> PluginError:
        return report(self._where, place or _caller(), reason, hint)


def parts_of(
    type: ComposedType,
    layer: str,
    bottoms: Sequence[str],
    tops: Sequence[str],
    values: Mapping[str, Any],
    types: Registry,
) -> list[ComposedPart]:
    """Return the parts of a layer of a composed type, in order; blobs have the names of the layer's bottoms and tops.

    ``values`` are those of the named arguments. Raises PluginError with file and line for a function that fails.
    """
    where = RunningLayer("", layer, type.type, 0, 0, True, False)
    if len(bottoms) < type.least or (len(bottoms) > len(type.bottoms) and not type.any_number):
        expected = f"at least {type.least}" if type.any_number else f"{type.least}"
        expected += "" if type.any_number or type.least == len(type.bottoms) else f" to {len(type.bottoms)}"
        raise PluginError(
            f"layer {layer!r} (custom type {type.type!r}) takes {number_of(expected, 'bottom')} ({', '.join(type.bottoms)}), "
            f"found {len(bottoms)}",
            layer=layer,
            hint=f"it is composed in {type.place}",
        )
    builder = Builder(where, types)
    inputs = [SymbolicBlob(builder, name) for name in bottoms]
    named = {name: values[name] for name in type.wanted}
    if not type.any_number:
        named.update(zip(type.bottoms, inputs))
    result = run(where, lambda: type.function(builder, *(inputs if type.any_number else ()), **named), type.function)
    return builder.finished(result, inputs, tops, type.place)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _caller() -> str:
    """Return path:line of the nearest frame outside of this file."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
