"""JSON schemas: ``validate`` checks a file and reports the position of the first violation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import ParseError
from ..suggest import did_you_mean
from .jsonfile import Document, Pointer, quoted

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_CHECKED = {
    "$ref", "type", "const", "enum", "minimum", "maximum", "pattern", "minItems", "items",
    "required", "properties", "additionalProperties",
}  # fmt: skip
_WORDS = {"$schema", "$id", "$defs", "title", "description"}


def validate(document: Document, schema: Mapping[str, Any], at: Pointer = ()) -> None:
    """Check a document, or the value ``at`` a place of it, against a JSON schema (2020-12).

    Raises ParseError for the first violation.

    Supported: the keywords above, ``const`` and ``enum`` with plain values, and ``$ref`` to "#/$defs/...". Raises ValueError
    for a schema with any other keyword, since ignoring it would accept what it forbids.
    """
    value = document.value
    for key in at:
        value = value[key]
    _Validator(document, schema).check(value, schema, at)


class _Validator:
    def __init__(self, document: Document, root: Mapping[str, Any]) -> None:
        self.document = document
        self.root = root

    def check(self, value: Any, schema: Mapping[str, Any], pointer: Pointer) -> None:
        if unknown := schema.keys() - _CHECKED - _WORDS:
            raise ValueError(f"schema keywords that are not implemented: {', '.join(sorted(unknown))}")
        if "$ref" in schema:
            self.check(value, self.root["$defs"][schema["$ref"].removeprefix("#/$defs/")], pointer)
        if "type" in schema and not _is(value, schema["type"]):
            raise self._wrong(pointer, _article(schema["type"]), value)
        if "const" in schema and not _same(value, schema["const"]):
            raise self._wrong(pointer, _show(schema["const"]), value)
        if "enum" in schema and not any(_same(value, e) for e in schema["enum"]):
            expected = "one of " + ", ".join(map(_show, schema["enum"]))
            raise self._wrong(pointer, expected, value, _near(value, schema["enum"]))
        if _is(value, "number"):
            low, high = schema.get("minimum", -math.inf), schema.get("maximum", math.inf)
            if not low <= value <= high:
                raise self._wrong(pointer, _bounds(low, high), value)
        elif isinstance(value, str):
            if "pattern" in schema and not re.search(schema["pattern"], value):
                raise self._wrong(pointer, schema.get("description", f"text that matches {schema['pattern']}"), value)
        elif isinstance(value, list):
            if len(value) < schema.get("minItems", 0):
                raise self._wrong(pointer, f"at least {schema['minItems']} items", len(value))
            if "items" in schema:
                for i, item in enumerate(value):
                    self.check(item, schema["items"], (*pointer, i))
        elif isinstance(value, dict):
            self._object(value, schema, pointer)

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], pointer: Pointer) -> None:
        properties = schema.get("properties", {})
        if schema.get("additionalProperties") is False:  # first: a misspelt key is also a missing one
            for key in value:
                if key not in properties:
                    near = _near(key, [p for p in properties if p not in value])
                    message = f"{_path(pointer)}: unknown key {_show(key)}"
                    hint = near or "keys here: " + ", ".join(properties)
                    raise self.document.error(message, (*pointer, key), key=True, hint=hint)
        for key in schema.get("required", ()):
            if key not in value:
                about = properties.get(key, {}).get("description")
                message = f"{_path(pointer)}: the key {_show(key)} is missing"
                raise self.document.error(message, pointer, hint=f"{key}: {about}" if about else None)
        others = schema.get("additionalProperties")
        for key, item in value.items():
            if key in properties:
                self.check(item, properties[key], (*pointer, key))
            elif isinstance(others, dict):
                self.check(item, others, (*pointer, key))

    def _wrong(self, pointer: Pointer, expected: str, value: Any, hint: str | None = None) -> ParseError:
        return self.document.error(f"{_path(pointer)}: expected {expected}, found {_show(value)}", pointer, hint=hint)


def _is(value: Any, type: str) -> bool:
    return isinstance(value, _TYPES[type]) and (type == "boolean" or not isinstance(value, bool))


def _bounds(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low}"
    return f"at most {high}" if low == -math.inf else f"{low} to {high}"


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)  # JSON's true is not 1


def _near(value: Any, known: Iterable[Any]) -> str | None:
    return did_you_mean(value, [k for k in known if isinstance(k, str)]) if isinstance(value, str) else None


def _article(type: str) -> str:
    name = {"object": "object {...}", "array": "list [...]", "integer": "whole number"}.get(type, type)
    return name if type == "null" else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return _article("object" if isinstance(value, dict) else "array")
    return quoted(value)


def _path(pointer: Pointer) -> str:
    """Return a pointer as text: ``tasks.conv.kernel_max``, ``registers.list[3]``; "the file" for the whole file."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in pointer)
    return text.removeprefix(".") or "the file"
