"""Find everything that a function's machine code depends on: functions it calls, constants it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, EnumMeta
from types import CodeType, ModuleType
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
