"""Where custom types come from.

Loading a file runs it, so files come only from places the user named: chai's own ``custom/``, ``CHAI_CUSTOM``,
``--custom``, ``chai.load_custom`` and installed packages with an entry point of the group ``chai.custom``; never from the
current folder or from beside a prototxt.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..env import env
from ..errors import ChaiError, PluginError
from ..util.paths import resource
from . import registry
from .failure import frames

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.metadata import EntryPoint
    from types import CodeType

log = logging.getLogger("chai.custom")


@dataclass(frozen=True)
class Extension:
    """Files that were loaded, and the types they registered."""

    path: Path
    types: tuple[str, ...]

    @property
    def version(self) -> dict[str, str]:
        """Version of each type, as its author numbered it."""
        found = ((t, registry.REGISTRY.find(t)) for t in self.types)
        return {t: custom.version for t, custom in found if custom is not None}

    def reload(self) -> Extension:
        """Run the files again, changed or not. Networks that are loaded keep what they have."""
        for file in _files(self.path):
            if file in registry.REGISTRY.files:
                registry.REGISTRY.files[file] = -1, registry.REGISTRY.files[file][1]
        return load_custom(self.path)

    def unload(self) -> None:
        """Forget the types. Networks that are loaded keep what they have."""
        for type in self.types:
            if registry.REGISTRY.find(type) is not None:
                registry.REGISTRY.unregister(type)
        for file in _files(self.path):
            registry.REGISTRY.files.pop(file, None)


def places() -> list[Path]:
    """Where custom layers are loaded from, besides ``--custom``."""
    return [resource("custom"), *env().custom]


def load_named() -> None:
    """Load what CHAI_CUSTOM names, as far as it is not loaded."""
    for place in env().custom:
        load_custom(place)


def load_shipped() -> None:
    """Load chai's own examples: when a type is unknown so far, or to list them."""
    load_custom(resource("custom"))


def load_custom(place: str | Path) -> Extension:
    """Run a file, or every .py file of a folder, that defines custom layers. A file that changed is run again.

    Raises PluginError with file and line for what cannot be run.
    """
    place = Path(place).resolve()
    if not place.exists():
        raise PluginError(f"custom layers: {place} does not exist")
    return Extension(place, tuple(type for file in _files(place) for type in _load_file(file)))


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.py")) if place.is_dir() else [place]


def _uncached(name: str, file: Path) -> Loader:
    """Python's loader without its bytecode, which it takes for fresh when an edit in the same second keeps the size."""
    from importlib.machinery import SourceFileLoader

    class Loader(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType:
            path = self.get_filename(fullname)
            code: CodeType = self.source_to_code(self.get_data(path), path)
            return code

    return Loader(name, str(file))


def _load_file(file: Path) -> tuple[str, ...]:
    import importlib.util

    stamp = file.stat().st_mtime_ns
    known = registry.REGISTRY.files.get(file)
    if known is not None and known[0] == stamp:
        return known[1]
    log.info("custom layers: running %s", file)
    name = f"chai_custom.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file, loader=_uncached(name, file))
    if file.suffix != ".py" or spec is None or spec.loader is None:
        raise PluginError(f"custom layers: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    before = dict(registry.REGISTRY.types)
    try:
        spec.loader.exec_module(module)
    except ChaiError:
        raise
    except (Exception, SystemExit) as error:
        lines = [n for f, n in frames(error) if f == str(file)]
        line = getattr(error, "lineno", None) or (lines[-1] if lines else 1)
        raise PluginError(f"custom layers: {file}:{line}: {type(error).__name__}: {error}") from error
    types = tuple(t for t, custom in registry.REGISTRY.types.items() if before.get(t) is not custom)
    for gone in set(known[1] if known else ()).difference(types):
        custom = registry.REGISTRY.types.get(gone)
        if custom is not None and custom.place.startswith(f"{file}:"):
            registry.REGISTRY.unregister(gone)
    registry.REGISTRY.files[file] = stamp, types
    return types


@lru_cache(maxsize=1)
def load_packages() -> None:
    """Import what installed packages offer under the entry point group ``chai.custom``; once, when a type is unknown."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="chai.custom"):
        _load_entry(entry)


def _load_entry(entry: EntryPoint) -> None:
    try:
        entry.load()
    except Exception as error:
        raise PluginError(
            f"custom layers: the entry point {entry.name} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}",
            hint="uninstall the package or repair it",
        ) from error
