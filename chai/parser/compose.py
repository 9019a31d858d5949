"""Expand composed layers: replace the message of a layer by those of its parts."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from textwrap import indent
from typing import Any

from ..errors import ChaiError, ParseError, PluginError
from ..graph import Composed
from ..limits import limits
from ..plugins.arguments import resolve
from ..plugins.composed import ComposedPart, ComposedType, parts_of
from ..plugins.definition import Definition
from ..plugins.fields import CustomParams
from ..plugins.loading import lookup
from ..plugins.registry import Registry
from ..util.source import SourceText
from .assign import layer_message
from .message import Message, fill, parameters, read
from .text import parse

Share = tuple[str, tuple[int, ...]]  # a composed layer, and those of its trained parameters that a part takes


class Expanded:
    """The plain layers that a composed layer becomes, with compositions inside it expanded, too.

    ``messages``   each with the composed layers that hold its trained parameters, the innermost first
    ``record``     for the Graph
    """

    def __init__(self, message: Message, place: str, type: Definition, types: Registry, room: int) -> None:
        assert isinstance(type, ComposedType)
        self.types = types
        self.room = room
        self.messages: list[tuple[Message, tuple[Share, ...]]] = []
        self._expand(message, type, (), ())
        text = "".join(f"layer {{\n{indent(part.source.text, '  ')}}}\n" for part, _ in self.messages)
        names = tuple(part.get("name") for part, _ in self.messages)
        bottoms, tops = tuple(message.all("bottom")), tuple(message.all("top"))
        self.record = Composed(type.type, names, text, place, bottoms, tops)

    def _expand(self, message: Message, type: ComposedType, around: tuple[str, ...], shares: tuple[Share, ...]) -> None:
        name, bottoms, tops = message.get("name", ""), message.all("bottom"), message.all("top")
        if type.type in around:
            what = f"composed type {type.type!r} is made of itself: {' -> '.join((*around, type.type))}"
            raise PluginError(f"layer {name!r}: {what}", layer=name, hint=f"it is composed in {type.place}")
        _check(message, bottoms)
        params = fill(CustomParams, message.get("xcustom_param"))
        try:
            values = resolve(type.args, params.float_args, params.string_args, parameters(message))
        except PluginError as error:
            what = f"layer {name!r} (custom type {type.type!r}): {error.message}"
            raise PluginError(what, layer=name, hint=error.hint) from error
        for part in parts_of(type, name, bottoms, tops, values, self.types):
            inside = lookup(self.types, part.type) if part.flagged else None
            expanded = _message(part, inside)
            taken = _shares(name, part, shares)
            if isinstance(inside, ComposedType):
                self._expand(expanded, inside, (*around, type.type), taken)
                continue
            if len(self.messages) == self.room:
                raise PluginError(f"layer {name!r}: too many parts: " + limits().exceeded("layers", self.room + 1))
            self.messages.append((expanded, taken))


def _check(message: Message, bottoms: list[str]) -> None:
    """Refuse fields of a composed layer that its parts have to have."""
    params = message.get("xcustom_param")
    if params is not None and params.has("top_dim"):
        at = params.values["top_dim"][0]
        text, name = "top_dim: the tops of a composed layer have the shapes that its parts give", message.get("name")
        raise message.source.error(text, at.start, at.end, hint="leave it out", layer=name)
    for field in ("precision_param", "quantization_param"):
        if message.has(field):
            text = f"{field}: the parts of a composed layer have formats, not the layer"
            raise message.error(text, field, hint="leave it out: chai quantize writes the parts with their formats")
    for i, top in enumerate(message.all("top")):
        if top in bottoms:
            text = f"{top!r} is bottom and top: a composed layer cannot work in place"
            raise message.error(text, "top", i, "give its top a name of its own")


def _shares(layer: str, part: ComposedPart, around: tuple[Share, ...]) -> tuple[Share, ...]:
    """Return where a part's trained parameters are: in its layer, which may have them from others in turn."""
    if not part.blobs:
        return ()
    count = min((len(indices) for _, indices in around), default=None)
    if count is not None and max(part.blobs) >= count:
        what = f"{part.place}: layer {part.name!r} takes blob {max(part.blobs)} of layer {layer!r}, which has {count}"
        raise PluginError(what, layer=part.name, hint="blobs= of the call that made the layer gives it more")
    return ((layer, part.blobs), *((name, tuple(indices[i] for i in part.blobs)) for name, indices in around))


def _message(part: ComposedPart, type: Definition | None) -> Message:
    """Return a part as a message whose positions are the line of the call that made it."""
    fields_of_custom, source, later = dict(part.fields), _Call(part), ""
    try:
        if part.flagged:
            fields, later = _arguments(part, type)
            fields_of_custom = {"user_defined_layer": True, **fields}
        names = [blob.name for blob in part.bottoms], [blob.name for blob in part.tops]
        source.text = f"{layer_message(part.type, part.name, *names, fields_of_custom)}{later}"
    except ChaiError as error:
        raise source.error(error.message, 0, hint=error.hint, layer=part.name) from error
    return read(parse(source), "LayerParameter", source)


def _arguments(part: ComposedPart, type: Definition | None) -> tuple[Mapping[str, Any], str]:
    """Return the fields of a layer of a custom type, and a prototxt of further ones.

    Named arguments become its xcustom_param; after a vector, which takes all numbers that are left there, fields by name.
    """
    args = type.args if type is not None else {}
    settings = {key: value for key, value in part.fields.items() if key not in args}
    if len(settings) == len(part.fields):
        return settings, ""
    values = resolve(args, (), (), {key: _several(part.fields[key]) for key in args if key in part.fields})
    texts = [value for value in values.values() if isinstance(value, str)]
    numbers = {name: _several(value) for name, value in values.items() if not isinstance(value, str)}
    vector = next((i for i, name in enumerate(numbers) if hasattr(values[name], "__iter__")), len(numbers))
    first = [float(n) for several in list(numbers.values())[: vector + 1] for n in several]
    later = [f"{name}: {str(n).lower()}" for name, several in list(numbers.items())[vector + 1 :] for n in several]
    custom = {**settings.get("xcustom_param", {}), "float_args": first, "string_args": texts}
    return {**settings, "xcustom_param": custom}, f"custom_param {{ {' '.join(later)} }}\n" if later else ""


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if hasattr(value, "__iter__") and not isinstance(value, str) else (value,)


class _Call(SourceText):
    """The text of a part; its errors show the call that made it."""

    def __init__(self, part: ComposedPart) -> None:
        path, _, line = part.place.rpartition(":")
        super().__init__("", path)
        self.line = int(line)

    def where(self, offset: int) -> tuple[int, int]:
        return self.line, 1

    def error(
        self, message: str, start: int, end: int | None = None, hint: str | None = None, layer: str | None = None
    ) -> ParseError:
        text = linecache.getline(self.path, self.line).rstrip("\n")
        shown = SourceText("\n" * (self.line - 1) + text, self.path)
        first = self.line - 1 + len(text) - len(text.lstrip())
        return shown.error(message, first, self.line - 1 + len(text), hint, layer)
