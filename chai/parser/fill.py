"""Fill Params dataclasses from messages, by reflection."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from ..util.data.dataclass_io import problem
from .message import Message, Value


def fill(cls: type, message: Message | None) -> Any:
    """Return an instance of ``cls`` with the fields that ``message`` sets, the others at their defaults.

    Raises ParseError for a value outside the range or choices that its field declares.
    """
    parameters: dict[str, Any] = {}
    for field in fields(cls):
        values = message.values.get(field.name) if message is not None else None
        if not values or message is None:
            continue
        nested = field.metadata.get("nested")
        checked = [fill(nested, v.value) if nested else _checked(v, field, message) for v in values]
        parameters[field.name] = tuple(checked) if isinstance(field.default, tuple) else checked[-1]
    return cls(**parameters)


def _checked(v: Value, field: Any, message: Message) -> Any:
    wrong = problem(field.metadata, v.value)
    if wrong:
        raise message.source.error(f"{field.name}: {wrong}", v.start, v.end)
    return v.value
