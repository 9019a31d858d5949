"""Dictionaries to dataclasses: every annotation that chai uses, and each refusal with its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chai.util.data.dataclass_io import problem, restore


@dataclass(frozen=True)
class Inner:
    name: str
    bits: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    rate: float
    flag: bool
    inner: Inner
    many: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (0, "")
    maybe: int | None = None
    size: int = field(default=1, metadata={"within": (1, 9)})
    sizes: tuple[int, ...] = field(default=(), metadata={"within": (1, 9)})
    method: str = field(default="MAX", metadata={"choice": ("MAX", "AVE")})
    anything: Any = None
    scale: float | tuple[float, ...] = 1.0
    resize: tuple[int, int] | str | None = None
    path: Path = Path()


LEAST: dict[str, Any] = {"rate": 2, "flag": True, "inner": {"name": "n"}}


def refuse(where: str, text: str) -> Exception:
    return ValueError(f"{where}: {text}")


def test_lists_become_tuples_and_whole_numbers_floats() -> None:
    more = {
        "many": [{"name": "a", "bits": [8, 6]}],
        "pair": [3, "x"],
        "maybe": None,
        "sizes": [1, 9],
        "path": Path("p"),
    }
    outer = restore(Outer, {**LEAST, **more}, refuse)
    assert outer == Outer(2.0, True, Inner("n"), (Inner("a", (8, 6)),), (3, "x"), None, sizes=(1, 9), path=Path("p"))
    assert isinstance(outer.rate, float)
    assert restore(Outer, LEAST, refuse) == Outer(2.0, True, Inner("n"))


def test_of_a_tuple_or_another_type_lists_are_the_tuple() -> None:
    several = restore(Outer, {**LEAST, "scale": [1, 2.5], "resize": [3, 4]}, refuse)
    assert (several.scale, several.resize) == ((1.0, 2.5), (3, 4))
    one = restore(Outer, {**LEAST, "scale": 2, "resize": "letterbox"}, refuse)
    assert (one.scale, one.resize) == (2.0, "letterbox")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rat": 1}, ".rat: unknown key"),
        ({"rate": "2"}, ".rate: expected float, found '2'"),
        ({"rate": True}, ".rate: expected float, found True"),
        ({"rate": float("nan")}, ".rate: expected a finite number, found nan"),
        ({"rate": 10**400}, f".rate: expected float, found 1{'0' * 59}"),
        ({"flag": 1}, ".flag: expected bool, found 1"),
        ({"inner": []}, ".inner: expected an object, found []"),
        ({"inner": {"name": 3}}, ".inner.name: expected str, found 3"),
        ({"many": [{"name": "a"}, {"name": "b", "bits": [1, 2.5]}]}, ".many[1].bits[1]: expected int, found 2.5"),
        ({"many": {"name": "a"}}, ".many: expected a list, found {'name': 'a'}"),
        ({"pair": [1]}, ".pair: expected 2 values, found 1"),
        ({"size": 10}, ".size: 10 is outside 1 .. 9"),
        ({"sizes": [3, 0]}, ".sizes: 0 is outside 1 .. 9"),
        ({"size": 10**400}, f".size: 1{'0' * 59} is outside 1 .. 9"),
        ({"method": "SUM"}, ".method: SUM is not implemented, only MAX, AVE"),
        ({"maybe": 1.5}, ".maybe: expected int, found 1.5"),
        ({"path": "p"}, ".path: expected Path, found 'p'"),
        ({"scale": [1, "2"]}, ".scale[1]: expected float, found '2'"),
        ({"scale": None}, ".scale: expected float, found None"),
        ({"resize": [3]}, ".resize: expected 2 values, found 1"),
        ({"resize": 3}, ".resize: expected str, found 3"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        restore(Outer, {**LEAST, **change}, refuse)
    assert str(caught.value) == message


def test_a_missing_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^\.inner: .*missing 1 required positional argument: 'name'"):
        restore(Outer, {**LEAST, "inner": {}}, refuse)


def test_numbers_without_a_range_have_to_be_finite() -> None:
    assert problem({}, float("inf")) == "expected a finite number, found inf"
    assert problem({}, 3.5) is None
    assert problem({"within": (0, 1)}, float("nan")) == "nan is outside 0 .. 1"
