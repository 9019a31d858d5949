"""Make a custom type of a user's class, whose methods compute one layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import PluginError
from ..definition import CustomOptions, CustomType, Function, place_of


def type_of(
    type: str,
    owner: Any,
    methods: Sequence[str],
    function: Function,
    options: CustomOptions,
    shape: Function | None = None,
) -> CustomType:
    """Return a type whose ``function`` and ``shape`` function call the methods of a user's class.

    Errors name the place of the last of ``methods``. Raises PluginError if the class lacks one.
    """
    name = getattr(owner, "__name__", repr(owner))
    missing = [method for method in methods if not callable(getattr(owner, method, None))]
    if missing or not hasattr(owner, "__mro__"):
        what = f"class {name} has no method {missing[0]}" if missing else f"{name} is no class"
        raise PluginError(f"custom type {type!r}: {what}", hint=f"expected a class with {' and '.join(methods)}")
    place = place_of(getattr(owner, methods[-1]))
    function.__dict__["place"] = place
    function.__module__ = owner.__module__  # decides who gets the type: all networks, or the one that loads this module
    custom = CustomType(type, function, False, options)
    custom.__doc__, custom.__name__ = owner.__doc__, name
    if shape is not None:
        shape.__dict__["place"] = place
        custom.shape(shape)
    return custom
