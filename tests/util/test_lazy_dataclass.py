"""Dataclasses compiled at their first use, compared with Python's own."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from threading import Barrier
from typing import Any, ClassVar

import pytest

from chai.util import lazy_dataclass

Decorator = Callable[..., Any]
PAIR = (lazy_dataclass.dataclass, dataclasses.dataclass)


@pytest.fixture(autouse=True, params=[0, lazy_dataclass.FEW])
def uncompiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the first objects made by the compiled __init__ or without."""
    monkeypatch.setattr(lazy_dataclass, "FEW", request.param)


def pair(frozen: bool, eq: bool = True) -> tuple[Any, Any]:
    """Return the same class, made by chai's decorator and by Python's."""

    def made(dataclass: Decorator) -> Any:
        @dataclass(frozen=frozen, eq=eq)
        class Base:
            """Of both."""

            a: int
            b: str = "b"
            kinds: ClassVar[int] = 7
            c: list[int] = field(default_factory=list, compare=False)
            d: float = field(default=0.5, kw_only=True, repr=False)
            e: tuple[int, ...] = field(default_factory=lambda: (1, 2), init=False)

        @dataclass(frozen=frozen, eq=eq)
        class Point(Base):
            """With more, and with checks."""

            b: str = "other"
            f: bool = True

            def __post_init__(self) -> None:
                if self.a < 0:
                    raise ValueError("negative")

        return Point

    return made(PAIR[0]), made(PAIR[1])


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
    cls, _ = pair(frozen=True)
    compiled = [name for name in ("__init__", "__eq__", "__hash__") if inspect.isfunction(vars(cls)[name])]
    assert compiled == []
    for _ in range(lazy_dataclass.FEW):
        cls(1)
    assert not inspect.isfunction(vars(cls)["__init__"])
    cls(1)
    compiled = [name for name in ("__init__", "__eq__", "__hash__") if inspect.isfunction(vars(cls)[name])]
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
