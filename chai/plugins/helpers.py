"""Copy a custom function and its compiled helpers, with other options for the helpers.

An option like boundscheck applies to one compiled function: a helper decorated with ``@numba.njit`` keeps its own options
for every caller. A function that needs bounds checks therefore calls copies of its helpers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CellType, FunctionType, ModuleType
from typing import Any

from .reach import all_names, content, is_dispatcher, members, reached


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
