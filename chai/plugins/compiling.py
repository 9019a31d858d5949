"""Compile custom functions: numba's options, its cache on disk, parallel kernels, and plain Python without numba.

numba's own cache checks only the file of the function: after an edit of a helper in another file it would run the old
code. Here every function has a cache folder named by a hash of its code and of everything it calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..blob import Array
from ..env import env
from ..util.interpreter import from_signal_handler
from ..util.log import logger, warn_once
from ..util.private import NotPrivateError, private_folder
from ..util.sharing import Mutex
from .failure import ParallelError
from .reach import digest, is_dispatcher, names_of, options_of, reached, with_helpers
from .xchange import COMPILED, VARYING, of_call

log = logger("chai.custom")
FOLDERS = 200  # number of cache folders that are kept, the last used ones
DISPATCHERS = 256  # number of them that are kept in memory
_dispatchers: dict[tuple[Any, str], Any] = {}  # by function, and hash of all that its machine code depends on
_configuring = Mutex()
_parallel = Mutex()


@lru_cache(maxsize=1)
def numba() -> Any:
    """Return the module numba, which is ``available``."""
    import numba as module

    from . import xchange_numba  # noqa: F401 - registers the type with numba

    return module


@lru_cache(maxsize=1)
def prange() -> Any:
    """Return the module that counts errors in parallel loops. It needs numba."""
    from . import prange_numba

    return prange_numba


@lru_cache(maxsize=1)
def available() -> bool:
    """Return whether numba is installed, without importing it."""
    from importlib.util import find_spec

    return find_spec("numba") is not None


class JitFunction:
    """A function for one set of argument types, called by one thread at a time, and the fields of x that it needs."""

    def __init__(self, function: Any, options: Any, x: Any, arguments: tuple[Any, ...], serial: bool = False) -> None:
        """Compile now; ``serial`` compiles parallel loops as serial ones. Raises numba's errors.

        ``arguments`` are those of all calls, x among them, whose arrays of a call are replaced.
        """
        self.function = function
        self.options = options
        self._x, self._arguments = x, arguments
        self.checked = options.boundscheck or env().debug >= 1 or env().check
        parallel = options.parallel or any(options_of(f).get("parallel") for f, _, _ in reached(function))
        self.parallel = parallel and not serial and not (self.checked and not prange().available)
        names = names_of(function)
        self.fields = tuple(name for name in COMPILED if name in names)
        self.dispatcher = self._dispatcher()
        try:
            self._entry = self._overload(x, arguments)
        except Exception as error:
            if len(self.fields) == len(COMPILED) or from_signal_handler(error):
                raise
            self.fields = COMPILED  # a helper that was not analysed may use any
            self._entry = self._overload(x, arguments)
        self._constant = tuple([x.__dict__[name] for name in self.fields if name not in VARYING])

    def _dispatcher(self) -> Any:
        math = self.options.math
        settings = {
            "nopython": True,  # numba's default from 0.59 on; before, what it cannot compile ran as Python, with warnings
            "nogil": True,
            "error_model": "numpy",  # as in C: 1 / 0 is inf
            "fastmath": set(math) if isinstance(math, frozenset) else math,
            "parallel": self.options.parallel,
        }
        if is_dispatcher(self.function):
            if not self.checked:
                return self.function  # compiled by the user, with the user's options
            settings = {**self.function.targetoptions, "locals": self.function.locals}
        settings["boundscheck"] = self.checked
        if not self.parallel:
            settings["parallel"] = False
        key = self.function, digest(self.function, (*settings.items(), self.parallel))
        if key not in _dispatchers:
            if len(_dispatchers) == DISPATCHERS:
                del _dispatchers[next(iter(_dispatchers))]
            _dispatchers[key] = self._jitted(settings, key[1])
        return _dispatchers[key]

    def _jitted(self, settings: dict[str, Any], hashed: str) -> Any:
        function = getattr(self.function, "py_func", self.function)
        if settings["boundscheck"]:
            changed = {"boundscheck": True} if self.parallel else {"boundscheck": True, "parallel": False}
            function = with_helpers(function, changed, numba().jit)
        return _kept(function, settings, hashed) or numba().jit(**settings)(function)

    def _overload(self, x: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        from .xchange_numba import type_of

        self.type = type_of(x, self.fields)
        types = tuple(self.type if value is x else numba().typeof(value) for value in arguments)
        # of inner functions and numba's own, too
        checks = _setting("BOUNDSCHECK", 1) if self.checked else nullcontext()
        with checks, prange().counting() if self.checked and self.parallel else nullcontext():
            try:
                self.dispatcher.compile(types)
            except Exception as error:
                # what numba says of a function is an error of its own; others come from its files on the disk
                told = isinstance(error, numba().errors.NumbaError) or from_signal_handler(error)
                if told or not _forgotten(self.dispatcher):
                    raise
                self.dispatcher.compile(types)
        entry: Callable[..., Any] = self.dispatcher.get_overload(types)
        return entry

    def __call__(self, bottoms: Sequence[Array], tops: Sequence[Array]) -> Any:
        """Call the compiled code on these arrays and return its result. Raises the errors of the function, and ParallelError."""
        varying = of_call(self.fields, bottoms, tops, self.options.ports)
        fields = self._x.__dict__
        fields["_fields"] = (*varying, *self._constant)
        try:
            return self._run_parallel() if self.parallel else self._entry(*self._arguments)
        finally:
            fields["_fields"] = ()  # the arrays are the caller's

    def _run_parallel(self) -> Any:
        # one at a time, unless numba's threading layer is thread-safe: workqueue would abort the process
        with nullcontext() if _threadsafe() else _parallel:
            threads, before = numba().get_num_threads(), prange().errors.value
            numba().set_num_threads(min(self.options.max_threads or threads, threads))
            try:
                result = self._entry(*self._arguments)
            finally:
                numba().set_num_threads(threads)
            if prange().errors.value != before:  # maybe of a concurrent kernel: the serial form decides
                raise ParallelError
            return result


def _kept(function: Any, settings: dict[str, Any], hashed: str) -> Any:
    """Return a dispatcher whose machine code is cached on disk, or None if that is impossible.

    numba stores it as a pickle, which can execute code: it is read only from folders that no other user can write to.
    """
    try:
        folder = private_folder(Path(env().cache), "numba", hashed)
        os.utime(folder)
        with _setting("CACHE_DIR", str(folder)):  # numba reads it when it decorates a function
            kept = numba().jit(cache=True, **settings)(function)
        if not str(kept.stats.cache_path).startswith(str(folder)):  # a notebook's cell: IPython has one folder for
            raise RuntimeError("numba would keep it elsewhere")  # all options of a function, and for all helpers
    except NotPrivateError as error:
        why = f"machine code is not read from or kept on the disk: {error}"
        warn_once("chai.custom", f"custom layers are compiled in memory, {why}")
        return None
    except (OSError, RuntimeError) as error:  # no writable folder, or code without a file
        log.info("%s: compiled again in each process: %s", getattr(function, "__name__", "?"), error)
        return None
    _forget_old(folder.parent)
    return kept


def _forgotten(dispatcher: Any) -> bool:
    """Delete what chai has of a dispatcher on the disk, which a power cut may have damaged; return whether it had anything."""
    files = [*Path(dispatcher.stats.cache_path or os.devnull).glob("*.nb[ci]")]
    if not files or Path(env().cache, "numba").absolute() not in files[0].absolute().parents:  # or it is the user's own
        return False
    log.warning("%s is damaged: the function is compiled again", files[0].parent)
    for file in files:
        file.unlink(missing_ok=True)
    return True


@contextmanager
def _setting(name: str, value: Any) -> Iterator[None]:
    """Set one of numba's settings of the process in this block, which one thread at a time is in."""
    config = numba().config
    with _configuring:
        before = getattr(config, name)
        setattr(config, name, value)
        try:
            yield
        finally:
            setattr(config, name, before)


@lru_cache(maxsize=4)
def _forget_old(root: Any) -> None:
    """Delete the least recently used cache folders, once per process."""
    try:
        folders = sorted(root.iterdir(), key=lambda f: f.stat().st_mtime, reverse=True)
    except OSError:
        return
    if len(folders) > FOLDERS:
        import shutil  # it loads three compressors

        for folder in folders[FOLDERS:]:
            shutil.rmtree(folder, ignore_errors=True)


def _threadsafe() -> bool:
    try:
        return numba().threading_layer() in ("omp", "tbb")
    except ValueError:  # none has been used
        return False
