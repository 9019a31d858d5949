"""Functions whose parameters are the fields of a dataclass: one object goes inward, the keywords stay in signature and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
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
    signature = inspect.signature(fields)

    def decorate(function: Callable[[T], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*arguments: P.args, **named: P.kwargs) -> R:
            _check(function.__name__, named, signature, error)
            return function(fields(*arguments, **named))

        described: Any = call
        described.__signature__ = signature.replace(return_annotation=function.__annotations__["return"])
        return call

    return decorate


def method_of(
    fields: Callable[P, T], error: Callable[..., Exception] = _type_error
) -> Callable[[Callable[[S, T], R]], Callable[Concatenate[S, P], R]]:
    """Do as ``function_of`` for a method."""
    signature = inspect.signature(fields)

    def decorate(method: Callable[[S, T], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def call(self: S, /, *arguments: P.args, **named: P.kwargs) -> R:
            _check(type(self).__name__, named, signature, error)
            return method(self, fields(*arguments, **named))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        parameters = [own, *signature.parameters.values()]
        described: Any = call
        described.__signature__ = inspect.Signature(parameters, return_annotation=method.__annotations__["return"])
        return call

    return decorate


def _check(owner: str, named: Iterable[str], signature: inspect.Signature, error: Callable[..., Exception]) -> None:
    for name in named:
        if name not in signature.parameters:
            raise error(f"{owner} has no option {name!r}", hint=did_you_mean(name, [*signature.parameters]))
