"""Functions whose parameters are the fields of a dataclass: one object goes inward, the keywords stay in signature and help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from .suggest import did_you_mean

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


def takes(
    fields: Callable[P, T], error: Callable[..., Exception]
) -> Callable[[Callable[[S, T], R]], Callable[Concatenate[S, P], R]]:
    """Let a method that takes one dataclass ``fields`` be called with its fields.

    A keyword that is no field raises ``error(message, hint=...)``.
    """
    signature = inspect.signature(fields)

    def decorate(method: Callable[[S, T], R]) -> Callable[Concatenate[S, P], R]:
        @wraps(method)
        def call(self: S, /, *arguments: P.args, **named: P.kwargs) -> R:
            for name in named:
                if name not in signature.parameters:
                    owner = type(self).__name__
                    hint = did_you_mean(name, [*signature.parameters])
                    raise error(f"{owner} has no option {name!r}", hint=hint)
            return method(self, fields(*arguments, **named))

        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        described: Any = call
        described.__signature__ = signature.replace(
            parameters=[own, *signature.parameters.values()], return_annotation=None
        )
        return call

    return decorate
