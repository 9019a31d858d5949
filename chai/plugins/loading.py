"""Load custom types from files, modules and installed packages.

Loading a file runs it, so files are loaded only from places that the user named: chai's own ``custom/``, ``CHAI_CUSTOM``,
``--custom``, ``chai.load_custom`` and installed packages with an entry point of the group ``chai.custom``; never from the
current folder or the folder of a prototxt. Of a folder, the files that import chai are run, and modules that a layer of
type Python names.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import layers
from ..env import env
from ..errors import PluginError
from ..util.files import content, path_of
from ..util.interpreter import from_signal_handler
from ..util.paths import resource
from ..util.suggest import did_you_mean
from . import python, registry
from .definition import Definition, plain_type

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# a file that defines types for chai: programs for pycaffe, which open nets, define none
_IMPORTS = rb"(?m)^\s*(import|from)\s+chai\b(?!\.pycaffe\b)"
Source = str | Path | ModuleType | Callable[..., Any] | Mapping[str, Callable[..., Any]] | Mapping[str, ModuleType]
Sources = Source | list[Source] | tuple[Source, ...]  # argument of Net(custom=...)
_own_types: dict[Path, registry.Registry] = {}  # types of the files and folders that networks were created with


@dataclass(frozen=True)
class Extension:
    """Loaded files and the types that they registered."""

    path: Path
    types: tuple[str, ...]

    @property
    def version(self) -> dict[str, str]:
        """The author's version number of each type."""
        definitions = ((t, registry.REGISTRY.find(t)) for t in self.types)
        return {t: custom.version for t, custom in definitions if custom is not None}

    def reload(self) -> Extension:
        """Run the files again, even if unchanged. Loaded networks keep their types."""
        for file in _files(self.path):
            if file in registry.REGISTRY.files:
                registry.REGISTRY.files[file] = -1, registry.REGISTRY.files[file][1]
        return load_custom(self.path)

    def unload(self) -> None:
        """Remove the types. Loaded networks keep theirs."""
        known = registry.REGISTRY
        inside = [f for f in known.files if self.path in (f, *f.parents)]
        types = {*self.types, *(type for file in inside for type in known.files.pop(file)[1])}
        for type in types.intersection(known.types):
            known.unregister(type)
        if self.path in known.folders:
            known.folders.remove(self.path)


def places() -> list[Path]:
    """Return the places that custom layers are loaded from, without ``--custom``."""
    return [resource("custom"), *map(Path, env().custom)]


def load_named() -> None:
    """Load the files of CHAI_CUSTOM that are not loaded yet."""
    for place in env().custom:
        load_custom(place)


def load_shipped() -> None:
    """Load chai's own examples: for a type that is still unknown, or to list them."""
    load_custom(resource("custom"))


def lookup(types: registry.Registry, key: str) -> Definition | None:
    """Return the definition of a type, or of a Python layer by module.class of its python_param.

    A class is looked for in the modules and folders that the registry has; an unknown type loads chai's own examples and
    installed packages.
    """
    definition = _found(types, key)
    for load in (load_shipped, load_packages):
        if definition is None:
            load()
            definition = types.find(key)
    return definition


def chosen(types: registry.Registry, type: str, flagged: bool) -> Definition | None:
    """Return the definition for a layer of this type; None if a built-in type computes it, or none is known.

    ``flagged``: whether it is marked user_defined_layer.
    """
    if not flagged and not types.overrides(type) and layers.find(type) is not None:
        return None
    return lookup(types, type)


def _found(types: registry.Registry | None, key: str) -> Definition | None:
    if types is None:
        return None
    return _class(types, key) or types.types.get(key) or _found(types.parent, key)


def _class(types: registry.Registry, key: str) -> Definition | None:
    """Return the type of a Python layer's class; its module is run if that is new or changed."""
    module, _, name = key.rpartition(".")
    loaded = types.modules.get(module)
    # what it has, without asking it: it could import more for a name that it has not
    attributes = object.__getattribute__(loaded, "__dict__") if isinstance(loaded, ModuleType) else {}
    imported: Any = attributes.get(name)
    if python.caffe.is_layer(imported):
        return python.caffe.type_of(imported, key)
    for folder in types.folders:
        file = python.modules.find(folder, module)
        if file is not None:
            into = registry.REGISTRY if types is registry.REGISTRY else _own_types[folder]
            _load_file(file, into, folder)
            if key not in into.types:
                has = [type.rpartition(".")[2] for type in into.files[file][1]]
                what = f"{file} has no class {name!r} of Python layers, derived from caffe.Layer"
                raise PluginError(what, hint=did_you_mean(name, has))
            return into.types[key]
    return None


def load_custom(place: str | Path) -> Extension:
    """Run a file that defines custom layers, or the files of a folder that import chai. A changed file is run again.

    A folder's other modules are run when a Python layer names them. Raises PluginError with file and line for code that
    fails.
    """
    place = _existing(path_of(place))
    known = registry.REGISTRY
    if place.is_dir() and place not in known.folders:
        known.folders.append(place)
    return Extension(place, tuple(type for file in _files(place) for type in _load_file(file, known)))


def registry_of(custom: Sources | None = None, strict: bool = False) -> registry.Registry:
    """Return the registry of one network: the types of ``custom``, then those of CHAI_CUSTOM and all others.

    ``custom`` is one of these, or a list of them:

    a path        of a .py file, or of a folder of them, which is run; it registers types for this network alone
    sys.modules   every imported module: Python layers may be of its classes of caffe.Layer
    a module      that was imported: every type that it, or a module of its package, defines, and its Python layers
    a class       with decorated methods, or of a Python layer
    a function    decorated or not; the type of one that is not decorated is the function's name
    a mapping     {type: function}

    ``strict``: see Registry. Raises PluginError for anything else, and for a type that two entries of a list define.
    """
    if env().custom:
        load_named()
    own: dict[str, Definition] = {}
    entries: Sequence[Any] = custom if isinstance(custom, (list, tuple)) else () if custom is None else (custom,)
    sources = [source for source in entries if source is not sys.modules]
    for source in sources:
        for type, definition in _types_of(source).items():
            before = own.setdefault(type, definition)
            if before is not definition:
                raise PluginError(
                    f"custom: type {type!r} is defined twice: {before.place} and {definition.place}",
                    hint="give one of them",
                )
    types = registry.Registry(own, registry.REGISTRY, strict)
    types.modules = sys.modules if len(sources) < len(entries) else {}
    for place in [_existing(source) for source in sources if isinstance(source, (str, Path))]:
        types.shapes |= _own_types[place].shapes
        types.folders += [place] if place.is_dir() else []
    return types


def _types_of(source: Any) -> Mapping[str, Definition]:
    if isinstance(source, (str, Path)):
        place = _existing(source)
        own = _own_types.setdefault(place, registry.Registry())
        # of the new and changed files, which are run, and of all others
        return {type: own.types[type] for file in _files(place) for type in _load_file(file, own) if type in own.types}
    if python.caffe.is_layer(source):
        source = {f"{source.__module__}.{source.__name__}": source}
    if isinstance(source, (ModuleType, type)):
        return _types_inside(source)
    if isinstance(source, Definition):
        return {source.type: source}
    if callable(source) and not isinstance(source, Mapping):
        type_ = getattr(source, "__name__", "")
        if not type_.isidentifier():  # a lambda, or an object without a name
            raise PluginError(f"custom={source!r}: it has no name to be its type", hint="custom={type: function}")
        source = {type_: source}
    if not isinstance(source, Mapping):
        raise PluginError(
            f"custom={source!r}: expected a .py file, a folder, a module, a function, or {{type: function}}",
            hint='custom="my_layers.py", or custom={"gemm": function}',
        )
    return {type: _definition(type, function) for type, function in source.items()}


def _definition(type: Any, function: Any) -> Definition:
    if not isinstance(type, str) or not type:
        raise PluginError(f"custom={{{type!r}: ...}}: expected the layer's type as text", hint='{"gemm": function}')
    return python.caffe.type_of(function, type) if python.caffe.is_layer(function) else plain_type(type, function)


def _types_inside(owner: ModuleType | type) -> Mapping[str, Definition]:
    types, kind, unit = _members(owner), "class", "method"
    if isinstance(owner, ModuleType):
        kind, unit, package = "module", "function", f"{owner.__name__}."
        everywhere = registry.REGISTRY.types.values()
        types[:0] = [c for c in everywhere if f"{getattr(c.function, '__module__', '')}.".startswith(package)]
        types += (custom for cls in vars(owner).values() if isinstance(cls, type) for custom in _members(cls))
        types += _python_layers(owner)
    if not types:
        raise PluginError(
            f"custom: {kind} {owner.__name__!r} defines no custom layer", hint=f'@chai.custom("gemm") before a {unit}'
        )
    return {custom.type: custom for custom in types}


def _python_layers(module: ModuleType) -> Iterator[Definition]:
    """Yield the types of a module's classes of Python layers."""
    version = getattr(module, "__version__", "")
    for name, cls in list(vars(module).items()):
        if python.caffe.is_layer(cls):
            key = f"{python.modules.dotted(module.__name__)}.{name}"
            yield python.caffe.type_of(cls, key, version if isinstance(version, str) else "")


def _members(owner: ModuleType | type) -> list[Definition]:
    """Return the types that are attributes of a module or class."""
    return [value for value in vars(owner).values() if isinstance(value, Definition)]


def _existing(place: str | Path) -> Path:
    if not str(place):  # which Path takes for the current folder
        raise PluginError("custom layers: the name of their file or folder is empty")
    path = Path(os.path.realpath(place))  # resolve() fails for links in a circle
    if not path.exists():
        raise PluginError(f"custom layers: {path} does not exist")
    return path


def _files(place: Path) -> list[Path]:
    """Return the files of a place that define types for chai."""
    if not place.is_dir():
        return [place]
    files = sorted(f for f in place.iterdir() if f.suffix in KINDS and f.is_file())
    return [f for f in files if f.suffix != ".py" or _imports_chai(f, f.stat().st_mtime_ns)]


@lru_cache(maxsize=1024)
def _imports_chai(file: Path, _time: int) -> bool:
    return re.search(_IMPORTS, content(file, "text_bytes")) is not None


def _load_file(file: Path, into: registry.Registry, root: Path | None = None) -> tuple[str, ...]:
    """Take the types of a file unless it is unchanged, and return those that it registered in ``into``.

    ``root``: the folder of a Python file's modules, if that is not its own.
    """
    known = into.files.get(file)
    if known is not None and known[0] == _stamp(file, into):
        return known[1]
    define = KINDS.get(file.suffix)
    if define is None:
        raise PluginError(f"custom layers: {file} is not a Python file", hint=f"expected {' or '.join(KINDS)}")
    before = dict(into.types)
    define(file, into, root or file.parent)
    types = tuple(t for t, custom in into.types.items() if before.get(t) is not custom)
    for gone in set(known[1] if known else ()).difference(types):
        custom = into.types.get(gone)
        if custom is not None and custom.place.startswith(f"{file}:"):
            into.unregister(gone)
    into.files[file] = _stamp(file, into), types
    return types


def _stamp(file: Path, types: registry.Registry) -> int:
    """Return a number that changes with a file, or with another that it names."""
    files = (file, *types.named.get(file, ()))
    return hash(tuple(f.stat().st_mtime_ns if f.exists() else 0 for f in files))


def _run(file: Path, into: registry.Registry, root: Path) -> None:
    """Run a Python file: what it decorates registers itself in ``into``, and its classes of Python layers are added."""
    name = python.modules.name_of(file, root)
    with registry.registering(name, into):
        module = python.modules.run(file, root)
    for definition in _python_layers(module):
        into.register(definition)


def _describe(file: Path, into: registry.Registry, _root: Path) -> None:
    """Register the OpenCL layers that an XML file describes."""
    from .opencl.described import register

    register(file, into)


# How the types of a file are registered, by the file's ending.
KINDS: Mapping[str, Callable[[Path, registry.Registry, Path], None]] = {".py": _run, ".xml": _describe}


@lru_cache(maxsize=1)
def load_packages() -> None:
    """Import the entry points ``chai.custom`` of installed packages, once, when a type is unknown."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="chai.custom"):
        _load_entry(entry)


def _load_entry(entry: EntryPoint) -> None:
    try:
        entry.load()
    except Exception as error:
        if from_signal_handler(error):
            raise
        what = f"custom layers: the entry point {entry.name} ({entry.value}) cannot be loaded"
        hint = "uninstall the package or repair it"
        raise PluginError(f"{what}: {type(error).__name__}: {error}", hint=hint) from error
