"""Python values to messages: the layers that programs write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import layers
from ..errors import UsageError
from ..util.suggest import did_you_mean
from .schema import fields, message_class

_OWN = {"name", "type", "bottom", "top", "blobs"}


def layer_message(
    type: str, name: str, bottoms: Sequence[str] = (), tops: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> Any:
    """Return a protobuf LayerParameter.

    ``values`` are fields of the type's ``*_param`` message or of the layer. Messages are mappings, repeated fields
    sequences, enum values numbers or names. Raises UsageError for an unknown field or an unsuitable value.
    """
    layer = message_class("LayerParameter")()
    layer.name, layer.type = name, type
    layer.bottom.extend(bottoms)
    layer.top.extend(tops)
    own = message_of(type)
    inner = fields(fields("LayerParameter")[own].message) if own else {}
    for key, value in (values or {}).items():
        if own and key in inner:
            assign(getattr(layer, own), key, value)
        elif key in layer.DESCRIPTOR.fields_by_name and key not in _OWN:
            assign(layer, key, value)
        else:
            known = [*inner, *(f for f in fields("LayerParameter") if f.endswith("_param"))]
            where = f"{own} and no field of a layer" if own else f"a layer; type {type!r} has no message of its own"
            hint = did_you_mean(key, known) or (None if own else did_you_mean(type, layers.types()))
            raise UsageError(f"{key} is no field of {where}", hint=hint)
    return layer


def message_of(type: str) -> str | None:
    """Return the ``*_param`` field of a layer type: the one that its class states, else the one that is named after it."""
    cls = layers.find(type)
    if cls is not None and cls.message is not None:
        return cls.message
    return next((name for name, field in fields("LayerParameter").items() if field.message == f"{type}Parameter"), None)


def assign(message: Any, name: str, value: Any) -> None:
    """Set a field of a protobuf message to a Python value. Raises UsageError, see ``layer_message``."""
    field = fields(message.DESCRIPTOR.name).get(name)
    if field is None:
        hint = did_you_mean(name, fields(message.DESCRIPTOR.name))
        raise UsageError(f"{name} is no field of {message.DESCRIPTOR.name}", hint=hint)
    several = field.repeated and not isinstance(value, (str, bytes, Mapping)) and hasattr(value, "__iter__")
    for item in value if several else (value,):
        if field.kind == "message":
            inner = getattr(message, name).add() if field.repeated else getattr(message, name)
            if not isinstance(item, Mapping):
                raise UsageError(f"{name}: expected a message, found {item!r}", hint=f"{name}={{field: value}}")
            inner.SetInParent()
            for key, part in item.items():
                assign(inner, key, part)
            continue
        plain = item.item() if hasattr(item, "item") else item  # a numpy scalar
        if field.kind == "enum" and isinstance(plain, str):
            if plain not in field.enum:
                raise UsageError(f"{name}: expected one of {', '.join(field.enum)}, found {plain!r}")
            plain = field.enum[plain]
        try:
            if field.repeated:
                getattr(message, name).append(plain)
            else:
                setattr(message, name, plain)
        except (TypeError, ValueError) as error:
            kind = {"int": "an integer", "float": "a number", "bool": "True or False", "enum": "an enum value"}
            shown = f"{plain!r} ({error})" if isinstance(error, ValueError) else repr(plain)
            raise UsageError(f"{name}: expected {kind.get(field.kind, 'a text')}, found {shown}") from None
