"""Parse and evaluate the formulas of WorkSizes, like ``"(Y+7)/8*8"``: whole numbers, B F Y X, ``+ - * / %``, brackets.

All arithmetic is that of C's integers: ``/`` and ``%`` truncate towards zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import add, mul, sub

DIMS = "BFYX"
LONGEST = 128  # characters of one formula
LARGEST = 2**63 - 1
_TOKEN = re.compile(r"\d+|[A-Za-z_]\w*|\S|\Z")  # a number, a name, a mark, or the end
_LEVELS = (("+", "-"), ("*", "/", "%"))  # of increasing binding strength
Value = Callable[[Mapping[str, int]], int]  # of the sizes B, F, Y and X


class FormulaError(ValueError):
    """A formula that cannot be parsed or evaluated; ``start`` is the index of the character at fault."""

    def __init__(self, message: str, start: int = 0) -> None:
        super().__init__(message)
        self.start = start


class Formula:
    """One size: ``value(dims)`` computes it. Raises FormulaError for text that is no formula."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > LONGEST:
            raise FormulaError(f"a formula of {len(text)} characters, expected at most {LONGEST}")
        self._tokens = [*_TOKEN.finditer(text)]
        self._next = 0
        self.value: Value = self._operation(0)
        if self._token[0]:
            raise FormulaError(f"expected an operator or the end, found {self._token[0]!r}", self._token.start())

    def names(self, dim: str) -> bool:
        """Return whether the value depends on B, F, Y or X."""
        return any(token[0] == dim for token in self._tokens)

    @property
    def _token(self) -> re.Match[str]:
        return self._tokens[self._next]

    def _taken(self) -> re.Match[str]:
        token = self._token
        self._next += 1
        return token

    def _operation(self, level: int) -> Value:
        if level == len(_LEVELS):
            return self._operand()
        value = self._operation(level + 1)
        while self._token[0] in _LEVELS[level]:
            value = _applied(self._taken(), value, self._operation(level + 1))
        return value

    def _operand(self) -> Value:
        token = self._taken()
        text, start = token[0], token.start()
        if text == "(":
            value = self._operation(0)
            if self._taken()[0] != ")":
                raise FormulaError("the bracket is not closed", start)
            return value
        if text.isdecimal() and text.isascii():
            number = int(text)
            if number > LARGEST:
                raise FormulaError(f"{text} is too large", start)
            return lambda _dims: number
        if text in tuple(DIMS):
            return lambda dims: dims[text]
        shown = repr(text) if text else "the end"
        raise FormulaError(f"expected a number, B, F, Y, X or a bracket, found {shown}", start)


def _applied(operator: re.Match[str], left: Value, right: Value) -> Value:
    def value(dims: Mapping[str, int]) -> int:
        a, b = left(dims), right(dims)
        if b == 0 and operator[0] in "/%":
            raise FormulaError(f"{a} {operator[0]} 0 is a division by zero", operator.start())
        result = _RESULTS[operator[0]](a, b)
        if abs(result) > LARGEST:
            raise FormulaError(f"{a} {operator[0]} {b} is too large", operator.start())
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
