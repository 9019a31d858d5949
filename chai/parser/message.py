"""Typed messages: the text tree read with the schema, and layers' parameters filled from them.

A Message knows which of its fields were set and where. Fields the schema does not know are kept and ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields as fields_of
from typing import Any, NamedTuple

from ..errors import ParseError
from ..util.data.dataclass_io import problem
from ..util.source import SourceText
from ..util.suggest import did_you_mean
from .schema import FieldType, fields
from .text import Block, Scalar, TextField

_LAYERS = {"LayerParameter", "V1LayerParameter", "V0LayerParameter"}
_TRUE = {"true", "True", "t", "1"}
_FALSE = {"false", "False", "f", "0"}


class Value(NamedTuple):
    """A Python value (int, float, bool, str or Message) and the offsets of its text."""

    value: Any
    start: int
    end: int


class Message:
    """A message of the schema's type ``type``: the fields that the file sets."""

    __slots__ = ("end", "source", "start", "type", "unknown", "values")

    def __init__(self, type: str, source: SourceText, start: int = 0, end: int = 0) -> None:
        self.type = type
        self.source = source
        self.start = start
        self.end = end
        self.values: dict[str, list[Value]] = {}
        self.unknown: list[TextField] = []

    def all(self, name: str) -> list[Any]:
        """Return every value of a field, in order; empty if it is not set."""
        return [v.value for v in self.values.get(name, ())]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or ``default`` if it is not set."""
        nodes = self.values.get(name)
        return nodes[-1].value if nodes else default

    def has(self, name: str) -> bool:
        return name in self.values

    def error(self, text: str, field: str, index: int = 0, hint: str | None = None) -> ParseError:
        """Return an error of this layer that shows a value of a field, or the field's name if the value is a message."""
        at = self.values[field][index]
        end = at.start + len(field) if isinstance(at.value, Message) else at.end
        return self.source.error(text, at.start, end, layer=self.get("name"), hint=hint)

    def with_text(self, name: str, text: str) -> Message:
        """Return the message with another text in a field, at the place of the old one."""
        other = Message(self.type, self.source, self.start, self.end)
        *before, last = self.values.get(name, [Value("", self.start, self.start + 1)])
        other.values = {**self.values, name: [*before, last._replace(value=text)]}
        other.unknown = self.unknown
        return other

    def move(self, name: str, target: Message, as_name: str | None = None) -> None:
        """Move a field's values, with their positions, to another message (used to upgrade old forms)."""
        if name in self.values:
            target.values.setdefault(as_name or name, []).extend(self.values.pop(name))


def parameters(layer: Message, more: Mapping[str, tuple[Any, ...]] | None = None) -> dict[str, tuple[Any, ...]]:
    """Return the values of every field in a layer's ``*_param`` messages by name, including fields outside the schema.

    Values outside the schema are text. xcustom_param is left out; ``more`` is added.
    """
    parameters_of: dict[str, list[Any]] = {}
    for name, values in layer.values.items():
        for message in (v.value for v in values if isinstance(v.value, Message) and name != "xcustom_param"):
            for field, nodes in message.values.items():
                plain = [v.value for v in nodes if not isinstance(v.value, Message)]
                parameters_of.setdefault(field, []).extend(plain)
            _unknown(message.unknown, parameters_of)
    for foreign in layer.unknown:
        if isinstance(foreign.value, Block):
            _unknown(foreign.value.fields, parameters_of)
    return {**{name: tuple(values) for name, values in parameters_of.items() if values}, **(more or {})}


def _unknown(fields: Iterable[TextField], texts: dict[str, list[Any]]) -> None:
    for field in fields:
        if isinstance(field.value, Scalar):
            texts.setdefault(field.name, []).append(field.value.text)


def fill(cls: type, message: Message | None) -> Any:
    """Return an instance of ``cls`` with the fields that ``message`` sets, the others at their defaults.

    Raises ParseError for a value outside the range or choices that its field declares.
    """
    parameters: dict[str, Any] = {}
    for field in fields_of(cls):
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


def read(block: Block, type: str, source: SourceText) -> Message:
    """Convert a tree into a message of the given type. Raises ParseError for a value that its field cannot hold."""
    message = Message(type, source, block.start, block.end)
    known = fields(type)
    if type == "V1LayerParameter":  # forks have layers of this form whose parameters Caffe has in the new form only
        known = fields("LayerParameter") | known
    for field in block.fields:
        definition = known.get(field.name)
        if definition is None:
            message.unknown.append(field)
            continue
        value = _value(field, definition, source)
        before = message.values.get(field.name)
        if before is None:
            message.values[field.name] = [value]
        elif definition.repeated:
            before.append(value)
        else:
            line, _ = source.where(before[0].start)
            what = f"{field.name} is given twice (first on line {line}); it can have one value"
            raise source.error(what, field.start, field.start + len(field.name))
    return message


def _value(field: TextField, definition: FieldType, source: SourceText) -> Value:
    node = field.value
    if isinstance(node, Block):
        if definition.kind != "message":
            what = f"{field.name}: expected {_expected(definition)}, found a message"
            raise source.error(what, field.start, node.start + 1)
        try:
            return Value(read(node, definition.message, source), field.start, node.end)
        except ParseError as error:
            if definition.message in _LAYERS and error.layer is None:
                names = (f.value.text for f in node.fields if f.name == "name" and isinstance(f.value, Scalar))
                error.layer = next(names, None)
            raise
    if definition.kind == "message":
        raise source.error(f"{field.name}: expected a message {{ ... }}, found {node.text!r}", node.start, node.end)
    return Value(_CONVERT[definition.kind](node, definition, source), node.start, node.end)


def _expected(definition: FieldType) -> str:
    kinds = {"int": "an integer", "float": "a number", "bool": "true or false"}
    kinds["enum"] = "one of " + ", ".join(definition.enum)
    return kinds.get(definition.kind, "a quoted string")


def _bad(node: Scalar, definition: FieldType, source: SourceText, hint: str | None = None) -> ParseError:
    text = f'"{node.text}"' if node.kind == "string" else node.text
    what = f"{definition.name}: expected {_expected(definition)}, found {text}"
    return source.error(what, node.start, node.end, hint)


def _integer(node: Scalar, definition: FieldType, source: SourceText) -> int:
    if node.kind != "number":
        raise _bad(node, definition, source, _integer_hint(node, definition))
    digits = node.text.lstrip("-")
    try:
        if digits[:2] in ("0x", "0X"):
            value = int(digits, 16)
        elif len(digits) > 1 and digits[0] == "0" and digits.isdecimal():
            value = int(digits, 8)  # as in C: 034 is 28
        else:
            value = int(digits if len(digits) < 25 else "9" * 25)
    except ValueError:
        raise _bad(node, definition, source) from None
    if node.text[0] == "-":
        value = -value
    if not definition.low <= value <= definition.high:
        what = f"{definition.name}: {node.text} is outside {definition.low} .. {definition.high}"
        raise source.error(what, node.start, node.end)
    return value


def _integer_hint(node: Scalar, definition: FieldType) -> str | None:
    sides = node.text.lower().split("x")
    pair = node.kind == "string" and len(sides) == 2 and all(s.isdecimal() for s in sides)
    if not pair or definition.name not in ("kernel_size", "stride", "pad"):
        return None
    stem = definition.name.removesuffix("_size")
    return f"write  {stem}_h: {sides[0]}  {stem}_w: {sides[1]}"


def _float(node: Scalar, definition: FieldType, source: SourceText) -> float:
    text = node.text.lower()
    if node.kind == "name" and text.lstrip("-") in ("inf", "infinity", "nan"):
        return float(text)
    if node.kind != "number":
        raise _bad(node, definition, source)
    try:
        if text.lstrip("-").startswith("0x"):
            return float(int(text, 16))
        return float(text.rstrip("f"))
    except (ValueError, OverflowError):
        raise _bad(node, definition, source) from None


def _bool(node: Scalar, definition: FieldType, source: SourceText) -> bool:
    if node.kind == "string" or node.text not in _TRUE | _FALSE:
        raise _bad(node, definition, source)
    return node.text in _TRUE


def _string(node: Scalar, definition: FieldType, source: SourceText) -> str:
    if node.kind != "string":
        raise _bad(node, definition, source, f'write {definition.name}: "{node.text}"')
    return node.text


def _enum(node: Scalar, definition: FieldType, source: SourceText) -> str:
    number = definition.enum.get(node.text) if node.kind == "name" else None
    if node.kind == "number":
        number = _integer(node, definition._replace(low=-(2**31), high=2**31 - 1), source)
    for name, value in definition.enum.items():
        if value == number:
            return name  # the first of several aliases
    if definition.name == "type" and node.kind == "name" and node.text.isupper():
        return node.text  # the type of a V1 layer, in a fork or of a user's own
    near = did_you_mean(node.text.upper(), definition.enum, quoted=False)
    raise _bad(node, definition, source, near or "a value of another Caffe fork?")


_CONVERT: dict[str, Any] = {"int": _integer, "float": _float, "bool": _bool, "enum": _enum}
_CONVERT |= {"string": _string, "bytes": _string}
