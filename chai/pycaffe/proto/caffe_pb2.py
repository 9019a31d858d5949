"""Messages and enum values of Caffe's schema, under the names that generated code would have.

``NetParameter()``, ``BlobProto.FromString(bytes)``, ``PoolingParameter.MAX``, ``TEST``: found in chai's schema when they
are asked for. The classes are protobuf's own, so ``google.protobuf.text_format`` reads and writes them.
"""

from __future__ import annotations

from typing import Any

from ...parser.schema import enum_values, message_class


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    values = enum_values()
    if name in values:
        return values[name]
    try:
        return message_class(name)
    except KeyError:
        raise AttributeError(f"Caffe's schema has no message or enum value {name!r}") from None
