"""Functions whose parameters are the fields of a dataclass: what a caller sees of them."""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pytest

from chai.util.keywords import function_of, method_of


@dataclass(frozen=True)
class Order:
    what: str
    _: KW_ONLY
    number: int = 2
    size: float = 7.0


@function_of(Order)
def ordered(order: Order) -> str:
    """Return an order."""
    return f"{order.number} {order.what} {order.size}"


class Shop:
    @method_of(Order)
    def order(self, order: Order) -> str:
        """Return an order."""
        return f"{order.number} {order.what} {order.size}"


@pytest.mark.parametrize(
    ("function", "own", "owner"), [(ordered, [], "ordered"), (Shop.order, ["self"], "Shop"), (Shop().order, [], "Shop")]
)
def test_keywords_defaults_and_errors(function: Any, own: list[str], owner: str) -> None:
    signature = inspect.signature(function)
    assert [*signature.parameters] == [*own, "what", "number", "size"]
    assert signature.parameters["number"].default == 2 and signature.return_annotation == "str"
    assert function.__doc__ == "Return an order."
    arguments = (Shop(),) if own else ()
    assert function(*arguments, "tea", size=3.0) == "2 tea 3.0"
    with pytest.raises(TypeError, match=f"^{owner} has no option 'nmber'; did you mean 'number'\\?$"):
        function(*arguments, "tea", nmber=3)
    with pytest.raises(TypeError, match="positional"):
        function(*arguments, "tea", 3)


def test_another_error() -> None:
    class Refused(Exception):
        def __init__(self, message: str, hint: str | None) -> None:
            super().__init__(message, hint)

    @function_of(Order, Refused)
    def asked(order: Order) -> str:
        return order.what

    with pytest.raises(Refused) as refused:
        asked("tea", size=3.0, nmber=5)
    assert refused.value.args == ("asked has no option 'nmber'", "did you mean 'number'?")
