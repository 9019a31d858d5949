"""``dataclasses.dataclass``, with methods that are compiled at their first use.

A command defines some hundred dataclasses and uses half of them, each for a few of its methods and most for a few objects.
Compiling all of them took a third of the start-up time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from functools import cached_property, partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
        """Make a dataclass, also for ``fields``, ``replace`` and ``asdict``. Slots and InitVar are not supported."""
        return _made(cls, frozen, eq) if cls is not None else lambda cls: _made(cls, frozen, eq)


_PARAMS = "__dataclass_params__"
FEW = 8  # objects of a class that are made before its __init__ is compiled
_ABSENT = object()  # default of a parameter whose value a factory makes


class _Method:
    """A method in a class that is replaced by the result of ``compile`` when it is first looked up."""

    def __init__(self, owner: type, name: str, compile: Callable[[type], Callable[..., Any]]) -> None:
        self.owner, self.name, self.compile = owner, name, compile

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method: Any = self.compile(self.owner)
        method.__qualname__ = f"{self.owner.__qualname__}.{self.name}"
        method.__module__ = self.owner.__module__
        setattr(self.owner, self.name, method)
        return method.__get__(instance, owner)


class _Init(_Method):
    """``__init__``: it fills the first few objects by itself, since compiling takes the time of some tens of them."""

    filled = 0

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if instance is None or self.filled >= FEW:
            return super().__get__(instance, owner)
        self.filled += 1
        return partial(self._fill, instance)

    @cached_property
    def _values(self) -> tuple[list[str], set[str], dict[str, Any], dict[str, Callable[[], Any]]]:
        """Return the names of positional parameters, those of all, and the fields' defaults and factories, by name."""
        fields, missing = dataclasses.fields(self.owner), dataclasses.MISSING
        return (
            [field.name for field in fields if field.init and not field.kw_only],
            {field.name for field in fields if field.init},
            {field.name: field.default for field in fields if field.default is not missing},
            {field.name: field.default_factory for field in fields if field.default_factory is not missing},
        )

    def _fill(self, instance: Any, /, *given: Any, **named: Any) -> None:
        positional, names, defaults, factories = self._values
        values = dict(zip(positional, given))
        fits = len(values) == len(given) and names.issuperset(named) and named.keys().isdisjoint(values)
        values |= named
        if not fits or (len(values) < len(names) and not names.issubset((*values, *defaults, *factories))):
            super().__get__(instance, self.owner)(*given, **named)  # which says what is wrong
            return
        new = {name: make() for name, make in factories.items() if name not in values}
        vars(instance).update({**defaults, **new, **values})
        if hasattr(instance, "__post_init__"):
            instance.__post_init__()


def _made(cls: type, frozen: bool, eq: bool) -> type:
    defined = {name for name, value in vars(cls).items() if value is not None or name != "__hash__"}
    bases = [vars(base)[_PARAMS] for base in cls.__mro__[1:] if _PARAMS in vars(base)]
    refusing = [params for params in bases if frozen and params.frozen]
    for params in refusing:  # else Python would compile what refuses changes
        params.frozen = False
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    for params in (*refusing, vars(cls)[_PARAMS]):
        params.frozen = frozen  # which Python's own subclasses have to be, too
    methods: dict[str, Any] = {
        "__init__": _Init(cls, "__init__", _frozen_init if frozen else _init),
        "__repr__": _repr,
    }
    if eq:
        methods |= {
            "__eq__": _Method(cls, "__eq__", _eq),
            "__hash__": _Method(cls, "__hash__", _hash) if frozen else None,
        }
    if frozen:
        names = {field.name for field in dataclasses.fields(cls)}
        methods |= {"__setattr__": _setattr(cls, names), "__delattr__": _delattr(cls, names)}
    for name in methods.keys() - defined:
        setattr(cls, name, methods[name])
    return cls


def _init(cls: type, assignment: str = "self.{} = {}") -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_absent": _ABSENT}
    positional, named, body = ["self"], ["*"], []
    for field in dataclasses.fields(cls):
        name, value, default = field.name, field.name, ""
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_new_{name}"] = field.default_factory
            default, value = "=_absent", f"_new_{name}() if {name} is _absent else {name}"
            value = value if field.init else f"_new_{name}()"
        if field.init:
            (named if field.kw_only else positional).append(name + default)
        if field.init or value != name:
            body.append(assignment.format(name, value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return _function("__init__", [*positional, *(named if len(named) > 1 else ())], body or ["pass"], names)


def _frozen_init(cls: type) -> Callable[..., None]:
    return _init(cls, "_set(self, {!r}, {})")


def _eq(cls: type) -> Callable[..., bool]:
    first, second = (_values(cls, name) for name in ("self", "other"))
    same = f"{first} == {second} if other.__class__ is self.__class__ else NotImplemented"
    return _function("__eq__", ["self", "other"], [f"return {same}"], {})


def _hash(cls: type) -> Callable[..., int]:
    return _function("__hash__", ["self"], [f"return hash({_values(cls, 'self')})"], {})


def _values(cls: type, name: str) -> str:
    """Return the text of a tuple of the fields that are compared."""
    return f"({''.join(f'{name}.{field.name}, ' for field in dataclasses.fields(cls) if field.compare)})"


def _function(name: str, parameters: list[str], body: list[str], names: dict[str, Any]) -> Callable[..., Any]:
    lines = "\n ".join(body)
    exec(f"def {name}({', '.join(parameters)}):\n {lines}", names)  # names of fields, which are identifiers
    function: Callable[..., Any] = names[name]
    return function


@recursive_repr()
def _repr(self: Any) -> str:
    values = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{self.__class__.__qualname__}({values})"


def _setattr(cls: Any, names: Collection[str]) -> Callable[..., None]:
    """Return a method that refuses to change a field, and any attribute of an instance that is not of a subclass."""

    def assign(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return assign


def _delattr(cls: Any, names: Collection[str]) -> Callable[..., None]:
    """Return a method that refuses to delete what ``_setattr`` refuses to change."""

    def delete(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return delete
