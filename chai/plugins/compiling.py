"""Compiled custom functions: numba's options, its cache on disk, parallel kernels, and life without numba.

numba's own cache looks at the file of the function alone: after an edit of a helper in another file it would run the
old code. Here every function has a cache folder named by a hash of its code and of all it calls.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from enum import Enum, EnumMeta
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from ..env import env
from ..util.lazy_numpy import np
from .xchange import COMPILED

log = logging.getLogger("chai.custom")
HANDOVER = 1  # counts changes of how x is handed to compiled code (kernels/xchange_numba.py)
FOLDERS = 200  # cache folders that are kept, the latest used
_configuring = threading.Lock()
_parallel = threading.Lock()


@lru_cache(maxsize=1)
def numba() -> Any:
    """The module, or None where it is not installed."""
    try:
        import numba as found

        from . import xchange_numba  # noqa: F401 - teaches numba the type
    except ImportError:
        return None
    return found


@lru_cache(maxsize=1)
def available() -> bool:
    """Whether numba is installed; without importing it."""
    from importlib.util import find_spec

    return find_spec("numba") is not None


class Compiled:
    """A function for one set of argument types: ``call(x, ...)``, and the fields that x has to bring."""

    def __init__(self, function: Any, options: Any, x: Any, given: tuple[Any, ...]) -> None:
        """Compile now. Raises what numba raises."""
        self.function = function
        self.options = options
        self.fields = tuple(name for name in COMPILED if name in _names(function))
        self.parallel = options.parallel or any(_is_parallel(f) for f, _, _ in _reached(function))
        self.dispatcher = _dispatcher(function, options)
        try:
            self._entry = self._overload(x, given)
        except Exception:
            if len(self.fields) == len(COMPILED):
                raise
            self.fields = COMPILED  # a helper that could not be found may name any
            self._entry = self._overload(x, given)

    def _overload(self, x: Any, given: tuple[Any, ...]) -> Callable[..., Any]:
        from .xchange_numba import type_of

        self.type = type_of(x, self.fields)
        types = tuple(self.type if value is x else numba().typeof(value) for value in given)
        self.dispatcher.compile(types)
        entry: Callable[..., Any] = self.dispatcher.get_overload(types)
        return entry

    def __call__(self, x: Any, given: tuple[Any, ...]) -> None:
        fields = x.__dict__
        fields["_fields"] = tuple([fields[name] for name in self.fields])
        # one at a time, unless numba's threading layer allows more: its workqueue would abort
        with _one_at_a_time(self.options.max_threads) if self.parallel else nullcontext():
            self._entry(*given)


def _dispatcher(function: Any, options: Any) -> Any:
    if hasattr(function, "py_func"):
        return function  # compiled by the user, with options of their own
    fast = options.fastmath
    settings = {
        "nogil": True,
        "error_model": "numpy",  # as in C: 1 / 0 is inf
        "fastmath": tuple(sorted(fast))
        if isinstance(fast, (set, frozenset))
        else fast,  # a set's order is not constant
        "parallel": options.parallel,
        "boundscheck": options.boundscheck or env().debug >= 1 or env().check,
    }
    chosen = tuple(settings.items())
    return _made(function, digest(function, chosen), chosen)


@lru_cache(maxsize=256)
def _made(function: Any, hashed: str, settings: tuple[tuple[str, Any], ...]) -> Any:
    numba_, folder, options = numba(), env().cache / "numba" / hashed, dict(settings)
    if isinstance(options["fastmath"], tuple):
        options["fastmath"] = set(options["fastmath"])  # numba takes no other kind
    with _configuring:  # a setting of the whole process, read when a function is decorated
        before = numba_.config.CACHE_DIR
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
            numba_.config.CACHE_DIR = str(folder)
            compiled = numba_.njit(cache=True, **options)(function)
        except (OSError, RuntimeError) as error:  # no folder to write to, or code without a file
            log.info("%s: compiled anew in each process: %s", getattr(function, "__name__", "?"), error)
            compiled = numba_.njit(**options)(function)
        finally:
            numba_.config.CACHE_DIR = before
    _forget_old(folder.parent)
    return compiled


@lru_cache(maxsize=4)
def _forget_old(root: Any) -> None:
    """Once per process: drop the cache folders that were used longest ago."""
    try:
        folders = sorted(root.iterdir(), key=lambda f: f.stat().st_mtime, reverse=True)
    except OSError:
        return
    for folder in folders[FOLDERS:]:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _limited(most: int) -> Iterator[None]:
    numba_ = numba()
    before = numba_.get_num_threads()
    numba_.set_num_threads(min(most, before))
    try:
        yield
    finally:
        numba_.set_num_threads(before)


@contextmanager
def _one_at_a_time(most: int | None) -> Iterator[None]:
    with _parallel if not _threadsafe() else nullcontext(), _limited(most) if most else nullcontext():
        yield


def _is_parallel(function: Any) -> bool:
    return bool(getattr(function, "targetoptions", {}).get("parallel"))


def _threadsafe() -> bool:
    try:
        return numba().threading_layer() in ("omp", "tbb")
    except ValueError:  # none was used so far
        return False


# -- what a function's machine code depends on


def digest(function: Any, settings: tuple[Any, ...] = ()) -> str:
    """Hash of a function's code, of every function it calls and every constant it reads, and of how x reaches it."""
    state = hashlib.sha256(_constant((HANDOVER, COMPILED, settings)))
    for _, code, outside in _reached(function):
        for part in (*_code(code), *(f"{name}=".encode() + _constant(value) for name, value in outside)):
            state.update(part)
    return state.hexdigest()[:24]


def _reached(function: Any) -> Iterator[tuple[Any, CodeType, list[tuple[str, Any]]]]:
    """A function and every function it calls, each with its code and what that names outside of itself."""
    seen: set[CodeType] = set()
    waiting = [function]
    while waiting:
        found = waiting.pop(0)
        python = getattr(found, "py_func", found)
        code = getattr(python, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        outside = list(_outside(python, code))
        yield found, code, outside
        waiting += [value for _, value in outside if hasattr(getattr(value, "py_func", value), "__code__")]


def _code(code: CodeType) -> Iterator[bytes]:
    yield repr((code.co_name, code.co_names, code.co_varnames, code.co_freevars)).encode()
    yield code.co_code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield _constant(constant)


def _outside(function: Any, code: CodeType) -> Iterator[tuple[str, Any]]:
    """Default values, globals, closure cells, and what of modules and enums a function's code names."""
    yield "defaults", function.__defaults__ or ()
    yield "keywords", tuple(sorted((function.__kwdefaults__ or {}).items()))
    cells = zip(code.co_freevars, function.__closure__ or ())
    known = {**function.__globals__, **dict(filter(None, (_content(*cell) for cell in cells)))}
    names = sorted({*_all_names(code), *code.co_freevars})
    waiting = [(name, known[name]) for name in names if name in known]
    seen = set()
    while waiting:
        name, value = waiting.pop(0)
        yield name, value
        if isinstance(value, (ModuleType, EnumMeta)) and id(value) not in seen:
            seen.add(id(value))
            inside = value.__members__ if isinstance(value, EnumMeta) else _members(value)
            waiting += [(f"{name}.{n}", inside[n]) for n in names if n in inside]


def _members(module: ModuleType) -> Mapping[str, Any]:
    return {} if module.__name__.partition(".")[0] in ("math", "numpy", "numba") else vars(module)


def _content(name: str, cell: Any) -> tuple[str, Any] | None:
    try:
        return name, cell.cell_contents
    except ValueError:  # not yet set
        return None


def _all_names(code: CodeType) -> set[str]:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return {*code.co_names, *(n for c in inner for n in _all_names(c))}


def _constant(value: Any) -> bytes:
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_constant, value)) + b")"
    if isinstance(value, frozenset):  # in an order that is the same in every process
        return b"{" + b",".join(sorted(map(_constant, value))) + b"}"
    if isinstance(value, np.ndarray):
        return repr((value.shape, value.dtype)).encode() + value.tobytes()
    if isinstance(value, (bool, int, float, complex, str, bytes, np.generic, Enum)):
        return repr(value).encode()
    return (value if isinstance(value, type) else type(value)).__qualname__.encode()


def _names(function: Any) -> set[str]:
    """Every name that a function or what it calls can ask an object for."""
    found: set[str] = set()
    for _, code, _ in _reached(function):
        found |= _all_names(code) | {c for c in code.co_consts if isinstance(c, str)}
    return found
