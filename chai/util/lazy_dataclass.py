"""``dataclass``, ``field``, ``fields``, ``replace`` and ``is_dataclass``, as of ``dataclasses``, which work at first use.

A command defines some hundred dataclasses and uses half of them, each for a few of its methods and most for a few objects.
Examining and compiling all of them took a third of the start-up time. What asks for a class's fields in another way, such as
``dataclasses.asdict`` or a dataclass of Python's own that derives from one of these, gets Python's fields, created at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from operator import attrgetter
from reprlib import recursive_repr
from types import MethodType
from typing import TYPE_CHECKING, Any

_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"  # where Python's functions look
FEW = 100  # objects of a class before its __init__ is compiled, which takes as long as filling them without
_MISSING: Any = object()


class _Field:
    """A field as a class declares it. ``hash`` is not supported."""

    name: str
    type: Any  # the annotation, which is text

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Callable[[], Any] = _MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        metadata: Mapping[str, Any] | None = None,
        kw_only: bool = False,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare, self.kw_only = init, repr, compare, kw_only
        self.metadata = metadata or {}


if TYPE_CHECKING:
    from dataclasses import (
        dataclass as dataclass,
        field as field,
        fields as fields,
        is_dataclass as is_dataclass,
        replace as replace,
    )
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """Make a dataclass. Slots, InitVar and bases that are Python's dataclasses are not supported."""
        return _made(cls, frozen, eq) if cls is not None else lambda cls: _made(cls, frozen, eq)

    field = _Field

    def fields(cls: Any) -> tuple[Any, ...]:
        """Return the fields of a dataclass or of an object of one. Raises TypeError for anything else."""
        definition = _definition(cls)
        if isinstance(definition, _Definition):
            return tuple(definition.fields.values())
        return _python().fields(cls)

    def is_dataclass(cls: Any) -> bool:
        """Return whether ``cls`` is a dataclass or an object of one."""
        return _definition(cls) is not None

    def replace(value: Any, /, **changes: Any) -> Any:
        """Return a new object with the fields of ``value``, but for ``changes``."""
        same = {f.name: getattr(value, f.name) for f in fields(value) if f.init and f.name not in changes}
        return type(value)(**same, **changes)


def _python() -> Any:
    """Return Python's module, whose import takes 0.6 ms."""
    import dataclasses

    return dataclasses


def _definition(cls: Any) -> Any:
    """Return what a class or the class of an object has for fields: of these dataclasses, of Python's, or None."""
    bases = (cls if isinstance(cls, type) else type(cls)).__mro__
    return next((vars(base)[_FIELDS] for base in bases if _FIELDS in vars(base)), None)


class _Definition:
    """``__dataclass_fields__`` of a class."""

    def __init__(self, owner: type, frozen: bool) -> None:
        self.owner, self.frozen = owner, frozen
        # Python has an attribute for each default, too, and none for a factory
        self.declared = {name: value for name, value in vars(owner).items() if type(value) is _Field}
        for name, one in self.declared.items():
            if one.default is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, one.default)
        for base in owner.__mro__[1:]:
            definition = vars(base).get(_FIELDS, self)
            if not isinstance(definition, _Definition):
                raise TypeError(f"{owner.__qualname__}: its base {base.__qualname__} is a dataclass of Python's own")
            if definition.frozen != frozen:
                kinds = ("frozen", "non-frozen") if frozen else ("non-frozen", "frozen")
                raise TypeError("cannot inherit {} dataclass from a {} one".format(*kinds))

    @cached_property
    def fields(self) -> dict[str, _Field]:
        """Return inherited and own fields by name, in the order of ``__init__``."""
        result: dict[str, _Field] = {}
        for base in self.owner.__mro__[:0:-1]:
            result |= vars(base)[_FIELDS].fields if _FIELDS in vars(base) else {}
        own = vars(self.owner)
        for name, kind in own.get("__annotations__", {}).items():
            if str(kind).partition("[")[0].endswith("ClassVar"):
                continue
            one = result[name] = self.declared.get(name) or _Field(default=own.get(name, _MISSING))
            one.name, one.type = name, kind
            if type(one.default).__hash__ is None:
                raise ValueError(
                    f"mutable default {type(one.default)} for field {name} is not allowed: use default_factory"
                )
        return result

    @cached_property
    def _pythons(self) -> dict[str, Any]:
        """Return the fields as Python's own, of a class of Python's that has nothing else."""
        python, specified = _python(), []
        for one in self.fields.values():
            options = {name: value for name, value in vars(one).items() if value is not _MISSING}
            name, kind = options.pop("name"), options.pop("type")
            specified.append((name, kind, python.field(**options)))
        twin = python.make_dataclass(self.owner.__name__, specified, init=False, repr=False, eq=False)
        params = getattr(twin, _PARAMS)
        params.frozen = self.frozen  # which subclasses have to be, too
        setattr(self.owner, _PARAMS, params)
        result: dict[str, Any] = getattr(twin, _FIELDS)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> dict[str, Any]:
        return self._pythons


class _Later:
    """An attribute of a class that is replaced by the result of ``compute`` when it is first looked up."""

    def __init__(self, definition: _Definition, name: str, compute: Callable[[_Definition], Any]) -> None:
        self.definition, self.name, self.compute = definition, name, compute

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        value, cls = self.compute(self.definition), self.definition.owner
        setattr(cls, self.name, value)
        if not callable(value):
            return value
        value.__qualname__, value.__module__ = f"{cls.__qualname__}.{self.name}", cls.__module__
        return value.__get__(instance, owner)


class _Init(_Later):
    """``__init__``: it fills the first objects by itself."""

    filled = 0

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or self.filled >= FEW or self._fill is None:
            return super().__get__(instance, owner)
        self.filled += 1
        return MethodType(self._fill, instance)

    @cached_property
    def _fill(self) -> Callable[..., None] | None:
        """Return a function that does what ``__init__`` does; None if a field is no parameter of it."""
        every = self.definition.fields.values()
        if not all(one.init for one in every):
            return None
        names = self.definition.fields.keys()
        positional = [one.name for one in every if not one.kw_only]
        defaults = {one.name: one.default for one in every if one.default is not _MISSING}
        factories = [(one.name, one.default_factory) for one in every if one.default_factory is not _MISSING]
        after = getattr(self.definition.owner, "__post_init__", None)
        compiled, put = super().__get__, object.__setattr__

        def fill(instance: Any, /, *arguments: Any, **named: Any) -> None:
            values = {**defaults, **dict(zip(positional, arguments)), **named}
            for name, make in factories:
                if name not in values:
                    values[name] = make()
            twice = len(arguments) > len(positional) or not named.keys().isdisjoint(positional[: len(arguments)])
            if twice or values.keys() != names:
                compiled(instance)(*arguments, **named)  # which says what is wrong
                return
            put(instance, "__dict__", values)
            if after is not None:
                instance.__post_init__()

        return fill


def _made(cls: type, frozen: bool, eq: bool) -> type:
    definition = _Definition(cls, frozen)
    attributes: dict[str, Any] = {
        "__init__": _Init(definition, "__init__", _frozen_init if frozen else _init),
        "__repr__": _repr,
        "__match_args__": _Later(definition, "__match_args__", _positional),
    }
    if eq:
        attributes["__eq__"] = _Later(definition, "__eq__", _eq)
        attributes["__hash__"] = _Later(definition, "__hash__", _hash) if frozen else None
    if frozen:
        attributes["__setattr__"], attributes["__delattr__"] = _refusals(definition)
    own = vars(cls)
    for name, value in attributes.items():
        if own.get(name) is None:  # Python sets __hash__ to None in a class that has an __eq__
            setattr(cls, name, value)
    setattr(cls, _FIELDS, definition)
    return cls


def _positional(definition: _Definition) -> tuple[str, ...]:
    return tuple(one.name for one in definition.fields.values() if one.init and not one.kw_only)


def _init(definition: _Definition, assignment: str = "self.{} = {}") -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    positional, named, body = ["self"], ["*"], []
    for name, one in definition.fields.items():
        value, default = name, ""
        if one.default is not _MISSING:
            names[f"_default_{name}"] = one.default
            default = f"=_default_{name}"
        elif one.default_factory is not _MISSING:
            names[f"_new_{name}"] = one.default_factory
            default, value = "=_missing", f"_new_{name}() if {name} is _missing else {name}"
            value = value if one.init else f"_new_{name}()"
        if one.init:
            (named if one.kw_only else positional).append(name + default)
        if one.init or value != name:
            body.append(assignment.format(name, value))
    if hasattr(definition.owner, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(named if len(named) > 1 else ())])
    lines = "\n ".join(body or ["pass"])
    exec(f"def __init__({parameters}):\n {lines}", names)  # names of fields, which are identifiers
    function: Callable[..., None] = names["__init__"]
    return function


def _frozen_init(definition: _Definition) -> Callable[..., None]:
    return _init(definition, "_set(self, {!r}, {})")


def _values(definition: _Definition) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function from an object to its fields that are compared."""
    compared = [one.name for one in definition.fields.values() if one.compare]
    if len(compared) < 2:  # of which attrgetter makes no tuple
        return lambda value: tuple(getattr(value, name) for name in compared)
    return attrgetter(*compared)


def _eq(definition: _Definition) -> Callable[[Any, Any], bool]:
    values = _values(definition)

    def equal(self: Any, other: Any) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash(definition: _Definition) -> Callable[[Any], int]:
    values = _values(definition)

    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({values})"


def _refusals(definition: _Definition) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return methods that refuse to set and to delete a field, and any attribute of an object that is not of a subclass."""
    cls: Any = definition.owner

    def assign(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in definition.fields:
            raise _python().FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        if type(self) is cls or name in definition.fields:
            raise _python().FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return assign, delete
