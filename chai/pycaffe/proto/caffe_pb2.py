"""Messages and enums of Caffe's schema, under the names that generated code would have.

``NetParameter()``, ``BlobProto.FromString(bytes)``, ``PoolingParameter.MAX``, ``TEST``, ``Phase.Value("TEST")``: found in
chai's schema when they are asked for. The classes are protobuf's own, so ``google.protobuf.text_format`` reads and writes
them.
"""

from __future__ import annotations

from typing import Any

from ...parser.schema import enum_class, message_class


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    file = message_class("NetParameter").DESCRIPTOR.file
    if name == "DESCRIPTOR":
        return file
    if name in file.message_types_by_name:
        return message_class(name)
    if name in file.enum_types_by_name:
        return enum_class(name)
    for enum in file.enum_types_by_name.values():
        if name in enum.values_by_name:
            return enum.values_by_name[name].number
    raise AttributeError(f"Caffe's schema has no message or enum value {name!r}")
