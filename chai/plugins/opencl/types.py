"""Register the layer types of an XML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..definition import Arity, CustomOptions, CustomType
from ..registry import Registry
from .description import Description, Given
from .kernel import Kernels
from .reading import read


def register(path: Path, into: Registry) -> None:
    """Register every layer type of an XML file. Raises ParseError with line and column.

    As the user named the file, its types also compute the layers of built-in types.
    """
    descriptions = read(path)
    into.named[path] = tuple(file for description in descriptions for file in description.files)
    for description in descriptions:
        options = CustomOptions(args=arguments(description), override=True, per_image=description.per_image)
        custom = CustomType(description.type, Kernels(description), False, options)
        custom.arity = Arity(first_shape=True)
        into.register(custom)


def arguments(description: Description) -> dict[str, Any]:
    """Return the named arguments of a layer, with their defaults: of its Defines and Scalars, in their order."""
    found: dict[str, Any] = {}
    for stage in description.stages:
        for define in stage.defines:
            if define.param:
                found.setdefault(define.param, _default(define.kind, define.default))
        for binding in stage.bindings:
            if isinstance(binding, Given):
                found.setdefault(binding.name, {"int": int, "float": float}[binding.kind])
    return found


def _default(kind: str, text: str | None) -> Any:
    """Return the default of an argument; its type if there is none and it has to be given."""
    if not kind:
        return text or ""
    if text is None:
        return {"int": int, "float": float}.get(kind, tuple)
    try:
        numbers = tuple(float(item.strip().removesuffix("f")) for item in text.split(","))
    except ValueError:
        return text  # the name of a constant
    return numbers if kind.endswith("[]") else int(numbers[0]) if kind == "int" else numbers[0]
