"""Functions whose parameters are the fields of a dataclass: one object goes inward, the keywords stay in signature and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .suggest import did_you_mean

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


def _type_error(message: str, hint: str | None) -> TypeError:
    return TypeError(f"{message}; {hint}" if hint else message)


def function_of(
    fields: Callable[P, T], error: Callable[..., Exception] = _type_error
) -> Callable[[Callable[[T], R]], Callable[P, R]]:
    """Let a function that takes one dataclass ``fields`` be called with its fields.

    A keyword that is no field raises ``error(message, hint=...)``, by default Python's own for it.
    """
    return partial(_called_with, fields, error, ())


def method_of(
    fields: Callable[P, T], error: Callable[..., Exception] = _type_error
) -> Callable[[Callable[[S, T], R]], Callable[Concatenate[S, P], R]]:
    """Do as ``function_of`` for a method."""
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return partial(_called_with, fields, error, (own,))


def _called_with(
    fields: Callable[..., Any],
    error: Callable[..., Exception],
    own: Sequence[inspect.Parameter],
    function: Callable[..., Any],
) -> Any:
    """Return the function with the fields as its parameters, after its ``own`` ones."""
    signature = inspect.signature(fields)
    first = len(own)
    owner = function.__qualname__.rpartition("<locals>.")[2].partition(".")[0]  # a function or a class

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        for name in named:
            if name not in signature.parameters:
                raise error(f"{owner} has no option {name!r}", hint=did_you_mean(name, [*signature.parameters]))
        return function(*arguments[:first], fields(*arguments[first:], **named))

    parameters = [*own, *signature.parameters.values()]
    described: Any = call
    described.__signature__ = inspect.Signature(parameters, return_annotation=function.__annotations__["return"])
    return call
