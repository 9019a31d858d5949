"""Messages and enums of Caffe's schema, under the names that generated code would have.

``NetParameter()``, ``BlobProto.FromString(bytes)``, ``PoolingParameter.MAX``, ``TEST``, ``Phase.Value("TEST")``: found in
chai's schema when they are asked for. The classes are protobuf's own, so ``google.protobuf.text_format`` reads and writes
them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ...parser.schema import enum_class, enum_values, message_class


def __getattr__(name: str) -> Any:
    if name == "DESCRIPTOR":
        return message_class("NetParameter").DESCRIPTOR.file
    if name.startswith("__"):
        raise AttributeError(name)
    values = enum_values()
    if name in values:
        return values[name]
    for find in (message_class, enum_class):
        with suppress(KeyError):
            return find(name)
    raise AttributeError(f"Caffe's schema has no message or enum value {name!r}")
