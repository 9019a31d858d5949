"""Load the Graph of a prototxt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..graph import Graph
from ..plugins.loading import chosen
from ..plugins.registry import Registry
from ..util.log import logger
from ..util.source import SourceText
from .build import NetState, build
from .message import Message, read
from .text import Block, TextField, parse, read_source, stamped
from .upgrade import upgrade

log = logger("chai.parser")


def load_graph(path: str | Path, custom: Registry, state: NetState | None = None, strict: bool = False) -> Graph:
    """Return the network of a prototxt in one state, wired, without shapes and weights.

    Fields that the schema does not have are named in a warning; with ``strict`` the first one is refused.
    Raises ParseError or ModelError (naming file, line and layer) and OSError when the file cannot be opened.
    """
    source = read_source(path)
    net = read(parse(source), "NetParameter", source)
    unknown = list(_unknown(net, custom))
    if unknown and strict:
        field, layer = unknown[0]
        what = f"layer {layer!r}: {field.name}" if layer else field.name
        start, hint = field.start, "without strict reading such fields are ignored"
        message = f"{what} is no field of Caffe's schema"
        raise source.error(message, start, start + len(field.name), layer=layer, hint=hint)
    if unknown:
        names = _with_lines(source, [field for field, _ in unknown])
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        log.warning("%s: fields that Caffe's schema does not have are ignored: %s", source.path, shown)
    state = state or NetState()
    graph = build(net, upgrade(net), state, custom)
    graph.weights_digest = stamped(source.text)
    if state.phase == "TRAIN":
        log.warning("%s: phase TRAIN chooses layers only: no dropout, no batch statistics", source.path)
    for note in graph.notes:
        log.info("%s: %s", source.path, note)
    return graph


def _with_lines(source: SourceText, fields: Sequence[TextField]) -> list[str]:
    """Return the names of fields, as ``name (lines 3, 8)``, in order of appearance."""
    lines_of: dict[str, list[int]] = {}
    for field in fields:
        lines_of.setdefault(field.name, []).append(source.where(field.start)[0])
    return [
        f"{name} (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines[:4]))}{', ...' if len(lines) > 4 else ''})"
        for name, lines in lines_of.items()
    ]


def _unknown(message: Message, custom: Registry, layer: str | None = None) -> Iterator[tuple[TextField, str | None]]:
    """Yield each field outside the schema with the name of its layer.

    A message from which a custom layer takes a named argument does not count.
    """
    taken: set[str] = set()
    if "Layer" in message.type:
        layer = message.get("name", layer)
        definition = chosen(custom, message.get("type", ""), bool(message.get("user_defined_layer")))
        taken = set(definition.args) if definition is not None else set()
    for field in message.unknown:
        inside = {f.name for f in field.value.fields} if isinstance(field.value, Block) else set()
        if taken.isdisjoint(inside):
            yield field, layer
    for values in message.values.values():
        for v in values:
            if isinstance(v.value, Message):
                yield from _unknown(v.value, custom, layer)
