"""Dataclasses compiled at their first use, compared with Python's own."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy, deepcopy
from functools import cached_property
from threading import Barrier
from typing import Any, ClassVar

import pytest

from chai.util import lazy_dataclass


@pytest.fixture(autouse=True, params=[0, lazy_dataclass.FEW])
def uncompiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first objects made by the compiled __init__ or without."""
    monkeypatch.setattr(lazy_dataclass, "FEW", request.param)


def pair(frozen: bool, eq: bool = True) -> tuple[Any, Any]:
    """Return the same class, made by chai's decorator and by Python's."""

    def made(own: Any) -> Any:
        field = own.field

        @own.dataclass(frozen=frozen, eq=eq)
        class Base:
            """Of both."""

            a: int
            b: str = "b"
            kinds: ClassVar[int] = 7
            c: list[int] = field(default_factory=list, compare=False)
            d: float = field(default=0.5, kw_only=True, repr=False)
            e: tuple[int, ...] = field(default_factory=lambda: (1, 2), init=False)

        @own.dataclass(frozen=frozen, eq=eq)
        class Point(Base):
            """With more, and with checks."""

            b: str = "other"
            f: bool = True

            def __post_init__(self) -> None:
                if self.a < 0:
                    raise ValueError("negative")

        return Point

    return made(lazy_dataclass), made(dataclasses)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("eq", [False, True])
def test_it_is_a_dataclass(frozen: bool, eq: bool) -> None:
    ours, own = pair(frozen, eq)
    for values in ({"a": 1}, {"a": 2, "c": [3], "d": 4.5}, {"a": 1, "b": "x", "f": False}):
        made, expected = ours(**values), own(**values)
        assert repr(made).partition("(")[2] == repr(expected).partition("(")[2]
        assert vars(made) == vars(expected)
        assert dataclasses.asdict(made) == dataclasses.asdict(expected)
        assert vars(dataclasses.replace(made, a=9)) == vars(dataclasses.replace(expected, a=9))
        for other in ({"a": 1}, {"a": 1, "c": [4]}, {"a": 2, "c": [3], "d": 4.5}):
            assert (made == ours(**other)) == (expected == own(**other))
            assert (made != ours(**other)) == (expected != own(**other))
        assert made != expected
    assert (ours.__hash__ is None) == (own.__hash__ is None)
    if own.__hash__ is not None:
        assert (hash(ours(1)) == hash(ours(1))) == (hash(own(1)) == hash(own(1)))
    assert ours(1).c is not ours(1).c
    assert str(inspect.signature(ours)).count("=") == str(inspect.signature(own)).count("=")
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(own).parameters)
    assert ours.__match_args__ == own.__match_args__
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(own)]


@pytest.mark.parametrize("frozen", [False, True])
def test_errors_are_the_same(frozen: bool) -> None:
    ours, own = pair(frozen)

    def error(work: Callable[[Any], object], cls: Any) -> str:
        with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
            work(cls)
        return f"{caught.type.__name__}: {caught.value}"

    refused: list[Callable[[Any], object]] = [
        lambda cls: cls(),
        lambda cls: cls(1, unknown=2),
        lambda cls: cls(1, "b", [], True, 0.5, 3),
        lambda cls: cls(-1),
    ]
    if frozen:
        refused += [lambda cls: setattr(cls(1), "a", 2), lambda cls: delattr(cls(1), "a")]
    for work in refused:
        assert error(work, ours) == error(work, own)


def test_a_subclass_has_attributes_of_its_own() -> None:
    """As Python's: a frozen class refuses to change its fields, of whichever class the instance is."""
    for base in pair(frozen=True):

        class Sub(base):  # type: ignore[misc,valid-type]
            def __init__(self) -> None:
                super().__init__(1)
                self.extra = 2

        sub = Sub()
        sub.extra = 3
        assert sub.extra == 3
        del sub.extra
        assert not hasattr(sub, "extra")
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'a'"):
            sub.a = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'a'"):
            del sub.a


@pytest.mark.parametrize("frozen", [False, True])
def test_python_makes_subclasses(frozen: bool) -> None:
    """A device of a user's may be a dataclass of Python's."""
    for base in pair(frozen):

        @dataclasses.dataclass(frozen=frozen)
        class Sub(base):  # type: ignore[misc,valid-type]
            more: int = 3

        assert dataclasses.asdict(Sub(1, more=4)) == {**dataclasses.asdict(base(1)), "more": 4}
        with pytest.raises(TypeError, match=r"cannot inherit (non-)?frozen"):
            dataclasses.dataclass(frozen=not frozen)(type("Other", (base,), {}))


def test_methods_of_the_class_stay() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 3

    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1))) == ("own", True, 3)


def test_only_what_is_used_is_compiled() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class Pair:
        a: int
        b: list[int] = lazy_dataclass.field(default_factory=list)

    compiled = [name for name in ("__init__", "__eq__", "__hash__") if inspect.isfunction(vars(Pair)[name])]
    assert compiled == []
    for _ in range(lazy_dataclass.FEW):
        Pair(1)
    assert not inspect.isfunction(vars(Pair)["__init__"])
    Pair(1)
    compiled = [name for name in ("__init__", "__eq__", "__hash__") if inspect.isfunction(vars(Pair)[name])]
    assert compiled == ["__init__"]


def test_threads_may_be_the_first_to_use_it() -> None:
    for _ in range(20):
        cls, _ = pair(frozen=True)
        start = Barrier(4)

        def use(number: int, cls: Any = cls, start: Barrier = start) -> bool:
            start.wait(10)
            return cls(number) == cls(number) and hash(cls(number)) == hash(cls(number))

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(use, range(4)))


@pytest.mark.parametrize("frozen", [False, True])
def test_functions_are_those_of_dataclasses(frozen: bool) -> None:
    """For a class, for an object, and for a class that Python derives from it."""
    ours, own = pair(frozen)

    def facts(module: Any, cls: Any) -> list[object]:
        value = module.replace(cls(1, c=[2]), a=3, d=1.5)
        names = ("name", "type", "init", "repr", "compare", "kw_only", "metadata")
        known = [[tuple(getattr(f, name) for name in names) for f in module.fields(of)] for of in (cls, value)]
        return [known, vars(value), module.is_dataclass(cls), module.is_dataclass(value), module.is_dataclass(int)]

    for derived in (lambda cls: cls, dataclasses.dataclass(frozen=frozen), lambda cls: type("Sub", (cls,), {})):
        first, second = (derived(type("Sub", (cls,), {"__annotations__": {"g": "int"}, "g": 7})) for cls in (ours, own))
        assert facts(lazy_dataclass, first) == facts(dataclasses, second)
        assert facts(dataclasses, first) == facts(dataclasses, second)
    with pytest.raises(TypeError):
        lazy_dataclass.fields(int)


@lazy_dataclass.dataclass(frozen=True)
class Kept:
    a: int
    b: tuple[int, ...] = ()

    @cached_property
    def sum(self) -> int:
        return self.a + sum(self.b)


def test_objects_are_copied_stored_matched_and_remember() -> None:
    value = Kept(1, (2, 3))
    assert value.sum == 6
    assert vars(value)["sum"] == 6
    copies = (copy(value), deepcopy(value), pickle.loads(pickle.dumps(value)))
    assert all(other == value and hash(other) == hash(value) for other in copies)
    match value:
        case Kept(first, rest):
            assert (first, rest) == (1, (2, 3))
        case _:
            pytest.fail("no match")


def test_classes_that_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        lazy_dataclass.dataclass(type("Other", (Kept,), {}))
    with pytest.raises(TypeError, match="its base Pythons is a dataclass of Python's own"):
        lazy_dataclass.dataclass(type("Other", (dataclasses.dataclass(type("Pythons", (), {})),), {}))
    shared = lazy_dataclass.dataclass(type("Shared", (), {"__annotations__": {"a": "list"}, "a": []}))
    with pytest.raises(ValueError, match="mutable default <class 'list'> for field a is not allowed"):
        shared()
