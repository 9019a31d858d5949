"""Find everything that a function's machine code depends on: functions it calls, constants it reads; and copy them.

An option like boundscheck applies to one compiled function: a helper decorated with ``@numba.njit`` keeps its own options
for every caller. A function that needs bounds checks therefore calls copies of its helpers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, EnumMeta
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from ..util.files import sha256
from ..util.lazy_numpy import np
from .xchange import COMPILED

HANDOVER = 2  # increment if the way x is passed to compiled code (xchange_numba.py) or compiled changes


def digest(function: Any, settings: tuple[Any, ...] = ()) -> str:
    """Return a hash of a function, of every function it calls and every constant it reads, and its compile options."""
    parts = [_constant((HANDOVER, COMPILED, settings))]
    for reached_function, code, outside in reached(function):
        parts += [_constant(options_of(reached_function)), *_code(code)]
        parts += [f"{name}=".encode() + _constant(value) for name, value in outside]
    return sha256(b"".join(parts))[:24]


def reached(function: Any) -> Iterator[tuple[Any, CodeType, list[tuple[str, Any]]]]:
    """Yield a function and every function it calls, each with its code and the outside values that it names."""
    seen: set[int] = set()  # functions, not codes: all functions of a factory share one code
    waiting = [function]
    while waiting:
        value = waiting.pop(0)
        python = getattr(value, "py_func", value)
        code = getattr(python, "__code__", None)
        if code is None or id(python) in seen:
            continue
        seen.add(id(python))
        outside = list(outside_of(python, code))
        yield value, code, outside
        waiting += [value for _, value in outside if hasattr(getattr(value, "py_func", value), "__code__")]


def is_dispatcher(value: Any) -> bool:
    """Return whether a value is a dispatcher of numba.jit."""
    return hasattr(value, "py_func") and hasattr(value, "targetoptions")


def options_of(function: Any) -> dict[str, Any]:
    """Return the options of a numba dispatcher; none for a plain function."""
    if not is_dispatcher(function):
        return {}
    signatures = [] if function._can_compile else function.signatures
    return {**function.targetoptions, "locals": repr(sorted(function.locals.items())), "signatures": repr(signatures)}


def _code(code: CodeType) -> Iterator[bytes]:
    yield repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars)).encode()
    yield code.co_code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield _constant(constant)


def outside_of(function: Any, code: CodeType) -> Iterator[tuple[str, Any]]:
    """Yield default values, globals, closure cells, and members of modules, enums and tuples that a code names."""
    cells = zip(code.co_freevars, function.__closure__ or ())
    values = {**function.__globals__, **dict(filter(None, (content(*cell) for cell in cells)))}
    names = sorted({*all_names(code), *code.co_freevars})
    keywords = tuple(sorted((function.__kwdefaults__ or {}).items()))
    waiting = [("defaults", function.__defaults__ or ()), ("keywords", keywords)]
    waiting += [(name, values[name]) for name in names if name in values]
    seen = set()
    while waiting:
        name, value = waiting.pop(0)
        yield name, value
        if isinstance(value, tuple):
            waiting += [
                (f"{name}[{i}]", item) for i, item in enumerate(value) if not isinstance(item, (int, float, str))
            ]
        if isinstance(value, (ModuleType, EnumMeta)) and id(value) not in seen:
            seen.add(id(value))
            inside = value.__members__ if isinstance(value, EnumMeta) else members(value)
            waiting += [(f"{name}.{n}", inside[n]) for n in names if n in inside]


def members(module: ModuleType) -> Mapping[str, Any]:
    """Return the members of a module; none for a module whose functions numba implements itself."""
    return {} if module.__name__.partition(".")[0] in ("math", "numpy", "numba") else vars(module)


def content(name: str, cell: Any) -> tuple[str, Any] | None:
    """Return the name and value of a closure's variable, or None before it is set."""
    try:
        return name, cell.cell_contents
    except ValueError:  # not yet set
        return None


def all_names(code: CodeType) -> set[str]:
    """Return every global and attribute named in a code and its inner codes."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return {*code.co_names, *(n for c in inner for n in all_names(c))}


def _constant(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_constant, value)) + b")"
    if isinstance(value, dict):
        return b"{" + b",".join(_constant(item) for item in sorted(value.items())) + b"}"
    if isinstance(value, (set, frozenset)):  # sorted, since their order differs between processes
        return b"{" + b",".join(sorted(map(_constant, value))) + b"}"
    if isinstance(value, np.ndarray):
        return repr((value.shape, value.dtype)).encode() + value.tobytes()
    if isinstance(value, (bool, int, float, complex, str, bytes, np.generic, Enum)):
        return repr(value).encode()
    return (value if isinstance(value, type) else type(value)).__qualname__.encode()


def names_of(function: Any) -> set[str]:
    """Return every name and string constant in a function and those it calls: all attributes that it may read."""
    names: set[str] = set()
    for _, code, _ in reached(function):
        names |= all_names(code) | {c for c in code.co_consts if isinstance(c, str)}
    return names


# -- copies, with other options for the helpers


def with_helpers(python: FunctionType, options: Mapping[str, Any], jit: Any) -> FunctionType:
    """Return a copy of a function whose helpers are compiled by ``jit`` with ``options`` added to their own.

    The function itself is returned if it calls no helper.
    """
    if not any(is_dispatcher(function) for function, _, _ in reached(python)):
        return python
    return _Copies(options, jit).function(python)


def plain(function: Any) -> Any:
    """Return a function as plain Python, with its helpers as plain Python, so that every index is checked."""
    python = getattr(function, "py_func", function)
    return with_helpers(python, {}, _interpreted) if isinstance(python, FunctionType) else python


def _interpreted(**_options: Any) -> Any:
    return lambda function: function


class _Copies:
    def __init__(self, options: Mapping[str, Any], jit: Any) -> None:
        self.options = options
        self.jit = jit
        self.dispatchers: dict[int, Any] = {}

    def function(self, python: FunctionType) -> FunctionType:
        copy = self._empty(python)
        self._fill(copy, python)
        return copy

    def _empty(self, python: FunctionType) -> FunctionType:
        """Return a copy with its own globals and cells, which still have the values of the original."""
        cells = tuple(CellType() for _ in python.__closure__ or ())
        copy = FunctionType(python.__code__, dict(python.__globals__), python.__name__, None, cells)
        copy.__defaults__ = self._value(python.__defaults__, ())
        copy.__kwdefaults__ = python.__kwdefaults__ and {
            k: self._value(v, ()) for k, v in python.__kwdefaults__.items()
        }
        copy.__qualname__ = python.__qualname__
        return copy

    def _fill(self, copy: FunctionType, python: FunctionType) -> None:
        names = sorted(all_names(python.__code__))
        space = copy.__globals__
        space.update((name, self._value(space[name], names)) for name in names if name in space)
        for name, cell, original in zip(python.__code__.co_freevars, copy.__closure__ or (), python.__closure__ or ()):
            variable = content(name, original)
            if variable is not None:
                cell.cell_contents = self._value(variable[1], names)

    def _value(self, value: Any, names: Any) -> Any:
        """Return a value with every dispatcher in it replaced; in modules, only those that ``names`` has."""
        if is_dispatcher(value):
            return self._dispatcher(value)
        if type(value) is tuple:
            return tuple(self._value(item, names) for item in value)
        if isinstance(value, ModuleType) and _holds(value, names, set()):
            return self._module(value, names, {})
        return value

    def _dispatcher(self, original: Any) -> Any:
        if id(original) not in self.dispatchers:
            python = self._empty(original.py_func)
            options = {**original.targetoptions, **self.options}
            copy = self.jit(locals=original.locals, pipeline_class=original._compiler.pipeline_class, **options)(python)
            self.dispatchers[id(original)] = copy  # before its globals are copied: it may call itself
            self._fill(python, original.py_func)
            if is_dispatcher(copy) and not original._can_compile:  # it was compiled for these types only
                for signature in original.signatures:
                    copy.compile(signature)
                copy.disable_compile()
        return self.dispatchers[id(original)]

    def _module(self, module: ModuleType, names: Any, shadows: dict[int, ModuleType]) -> ModuleType:
        if id(module) not in shadows:
            shadow = shadows[id(module)] = ModuleType(module.__name__)
            shadow.__dict__.update(vars(module))
            for name in set(names) & set(members(module)):
                value = members(module)[name]
                if isinstance(value, ModuleType) and _holds(value, names, set()):
                    shadow.__dict__[name] = self._module(value, names, shadows)
                elif not isinstance(value, ModuleType):
                    shadow.__dict__[name] = self._value(value, names)
        return shadows[id(module)]


def _holds(value: Any, names: Any, seen: set[int]) -> bool:
    """Return whether a value is a dispatcher, or holds one under one of these names."""
    if isinstance(value, ModuleType):
        if id(value) in seen:
            return False
        seen.add(id(value))
        inside = members(value)
        return any(_holds(inside[name], names, seen) for name in names if name in inside)
    return is_dispatcher(value) or (type(value) is tuple and any(_holds(item, names, seen) for item in value))
