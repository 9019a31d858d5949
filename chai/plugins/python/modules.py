"""Run Python files that the user named.

A file is run as a module of a package that stands for its folder (the root), so that two folders may have modules of the
same name, and none of them is found by anyone else. Its imports find, in this order: Python's own modules, chai and numpy;
the files beside it, as in Python 2; those of the root; and what is installed. ``import caffe`` finds chai.pycaffe where
Caffe is not installed, and no file. This holds only for code run from here: neither sys.path nor the module ``caffe`` of
the process is changed.
"""

from __future__ import annotations

import builtins
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ...errors import ChaiError, PluginError
from ...limits import limits
from ...util.files import content, sha256
from ...util.interpreter import from_signal_handler
from ...util.log import logger
from ..failure import PACKAGE, dated, frames, imported

log = logger("chai.custom")
ALWAYS_ITSELF = {*sys.stdlib_module_names, "chai", "numpy"}
STANDS_FOR = {"caffe": "chai.pycaffe"}  # modules of other systems, where these are not installed
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_roots: dict[str, Path] = {}  # by the name of their package


def name_of(file: Path, root: Path) -> str:
    """Return the name that a file of a root folder is run by."""
    parts = file.relative_to(root).with_suffix("").parts
    parts = parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts
    return ".".join((_package(root), *(part.replace(".", "_") for part in parts)))


def dotted(name: str) -> str:
    """Return the name of a module as an import has it: in its root folder, for one that was run from here."""
    return name.split(".", 2)[2] if name.startswith(f"{PACKAGE}.") else name


def find(root: Path, name: str) -> Path | None:
    """Return the file of a module under a root folder, for a dotted name like that of an import; None if there is none."""
    if len(name) > limits().name_length or _DOTTED.fullmatch(name) is None:
        return None
    stem = root.joinpath(*name.split("."))
    with suppress(OSError):  # a name that is too long for the file system
        return next((f for f in (stem.with_suffix(".py"), stem / "__init__.py") if f.is_file()), None)
    return None


def run(file: Path, root: Path) -> ModuleType:
    """Run a file of a root folder, even if it has run before, and return its module.

    The packages that it is in are run first, once. Raises PluginError with file and line for code that fails.
    """
    log.info("custom layers: running %s", file)
    name = name_of(file, root)
    spec = spec_from_file_location(name, file, loader=_Loader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    _neighbour.cache_clear()
    importlib.invalidate_caches()
    try:
        parent = importlib.import_module(name.rpartition(".")[0])
        sys.modules[name] = module
        spec.loader.exec_module(module)
        setattr(parent, name.rpartition(".")[2], module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, ChaiError) or not isinstance(error, (Exception, SystemExit)) or from_signal_handler(error):
            raise
        raise _failed(error, file, root) from error
    return module


def _failed(error: BaseException, file: Path, root: Path) -> PluginError:
    """Return the error for code that fails while it is imported: at its place in the root's innermost file."""
    places = [(f, line) for f, line in frames(error) if root in Path(f).parents]
    place, line = places[-1] if places else (str(file), 1)
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        place, line = error.filename, error.lineno
    reason = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return PluginError(f"custom layers: {place}:{line}: {imported(reason)}", hint=dated(error))


def _package(root: Path) -> str:
    """Return the name of the package that stands for a root folder; the same in every process."""
    name = f"{PACKAGE}.at_{sha256(str(root).encode())[:12]}"
    if name not in _roots:
        _roots[name] = root
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(0, _Finder)
    return name


class _Finder:
    """Finds the modules of the packages that stand for root folders, and no others."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == PACKAGE or name in _roots:
            spec = ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = [str(_roots[name])] if name in _roots else []
            return spec
        if not name.startswith(f"{PACKAGE}."):
            return None
        module_spec = PathFinder.find_spec(name, path, target)
        if module_spec is not None and isinstance(module_spec.loader, SourceFileLoader):
            module_spec.loader = _Loader(name, module_spec.loader.path)
        return module_spec


class _Loader(SourceFileLoader):
    """Python's loader with the imports of its root folder, and without bytecode files.

    These would be used after an edit in the same second that keeps the size.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(content(path, "text_bytes"), path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        package = ".".join(module.__name__.split(".")[:2])
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _importer(package)}
        super().exec_module(module)


def _importer(package: str) -> Callable[..., ModuleType]:
    """Return the function that ``import`` calls in modules of a package that stands for a root folder."""

    def importer(
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top, _, rest = name.partition(".")
        instead = _instead(package, top, globals or {}) if level == 0 else top
        if instead == top:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        full = f"{instead}.{rest}" if rest else instead
        if fromlist:
            return builtins.__import__(full, globals, locals, fromlist, 0)
        importlib.import_module(full)
        return sys.modules[instead]

    return importer


def _instead(package: str, top: str, importing: Mapping[str, Any]) -> str:
    """Return the full name of the module that ``import top`` finds in a module with these globals."""
    if top in ALWAYS_ITSELF:
        return top
    if top in STANDS_FOR:
        return top if _installed(top) else STANDS_FOR[top]
    own = package if "absolute_import" in importing else importing.get("__package__") or package
    neighbours = [spec for folder in dict.fromkeys((own, package)) if (spec := _neighbour(folder, top)) is not None]
    for spec in neighbours:
        if spec.origin is not None and spec.name != importing.get("__name__"):
            return spec.name
    return neighbours[0].name if neighbours and not _installed(top) else top


@lru_cache(maxsize=1024)
def _neighbour(package: str, top: str) -> ModuleSpec | None:
    return _Finder.find_spec(f"{package}.{top}", getattr(sys.modules.get(package), "__path__", ()))


def _installed(top: str) -> bool:
    """Return whether a module is installed or imported; a folder of that name on sys.path is none."""
    if sys.modules.get(top) is not None:
        return True
    spec = find_spec(top)
    return spec is not None and spec.origin is not None
