"""Parse and evaluate the formulas of WorkSizes, like ``"(Y+7)/8*8"``: whole numbers, B F Y X, ``+ - * / %``, brackets.

All arithmetic is that of C's integers: ``/`` and ``%`` truncate towards zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import add, mul, sub
from typing import NamedTuple

DIMS = "BFYX"
LONGEST = 128  # characters of one formula
LARGEST = 2**63 - 1
_TOKEN = re.compile(r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)|(?P<mark>\S))")
_LEVELS = ("+-", "*/%")  # of increasing binding strength


class FormulaError(ValueError):
    """A formula that cannot be parsed or evaluated; ``start`` is the index of the character at fault."""

    def __init__(self, message: str, start: int = 0) -> None:
        super().__init__(message)
        self.start = start


class Token(NamedTuple):
    """A number, name or mark of a formula, and its index there."""

    text: str
    start: int


class Formula:
    """One size: ``value(dims)`` computes it. Raises FormulaError for text that is no formula."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise FormulaError(f"a formula of {len(text)} characters, expected at most {LONGEST}")
        self._tokens = [Token(m[m.lastgroup or 0], m.start(m.lastgroup or 0)) for m in _TOKEN.finditer(text)]
        self._next = 0
        self.value: Callable[[Mapping[str, int]], int] = self._operation(0)
        if self._token.text:
            raise FormulaError(f"expected an operator or the end, found {self._token.text!r}", self._token.start)

    def names(self, dim: str) -> bool:
        """Return whether the value depends on B, F, Y or X."""
        return any(token.text == dim for token in self._tokens)

    @property
    def _token(self) -> Token:
        return self._tokens[self._next] if self._next < len(self._tokens) else Token("", len(self.text))

    def _taken(self) -> Token:
        token = self._token
        self._next += 1
        return token

    def _operation(self, level: int) -> Callable[[Mapping[str, int]], int]:
        if level == len(_LEVELS):
            return self._operand()
        value = self._operation(level + 1)
        while self._token.text and self._token.text in _LEVELS[level]:
            value = _applied(self._taken(), value, self._operation(level + 1))
        return value

    def _operand(self) -> Callable[[Mapping[str, int]], int]:
        token = self._taken()
        if token.text == "(":
            value = self._operation(0)
            if self._token.text != ")":
                raise FormulaError("the bracket is not closed", token.start)
            self._taken()
            return value
        if token.text.isdecimal() and token.text.isascii():
            number = int(token.text)
            if number > LARGEST:
                raise FormulaError(f"{token.text} is too large", token.start)
            return lambda _dims: number
        if token.text in tuple(DIMS):
            return lambda dims: dims[token.text]
        shown = repr(token.text) if token.text else "the end"
        raise FormulaError(f"expected a number, B, F, Y, X or a bracket, found {shown}", token.start)


def _applied(
    operator: Token, left: Callable[[Mapping[str, int]], int], right: Callable[[Mapping[str, int]], int]
) -> Callable[[Mapping[str, int]], int]:
    def value(dims: Mapping[str, int]) -> int:
        a, b = left(dims), right(dims)
        if b == 0 and operator.text in "/%":
            raise FormulaError(f"{a} {operator.text} 0 is a division by zero", operator.start)
        result = _RESULTS[operator.text](a, b)
        if abs(result) > LARGEST:
            raise FormulaError(f"{a} {operator.text} {b} is too large", operator.start)
        return result

    return value


def _quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_RESULTS: Mapping[str, Callable[[int, int], int]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": _quotient,
    "%": lambda a, b: a - b * _quotient(a, b),
}
