"""Reading networks: text -> tree -> messages -> Graph, and caffemodels."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from ..graph import Graph
from ..plugins.registry import Registry
from .build import State, build
from .message import Message, read
from .stamp import stamped
from .text import parse, read_source
from .upgrade import upgrade

log = logging.getLogger("chai.parser")


def load_graph(
    path: str | Path, custom: Registry, phase: str = "TEST", level: int = 0, stages: Sequence[str] = ()
) -> Graph:
    """The network of a prototxt in one phase, wired, without shapes and weights.

    Raises ParseError or ModelError (naming file, line and layer) and OSError when the file cannot be opened.
    """
    source = read_source(path)
    net = read(parse(source), "NetParameter", source)
    unknown = unknown_fields(net)
    if unknown:
        shown = ", ".join(unknown[:8]) + (f" and {len(unknown) - 8} more" if len(unknown) > 8 else "")
        log.warning("%s: fields that Caffe's schema does not have are ignored: %s", source.path, shown)
    graph = build(net, upgrade(net), State(phase, level, stages), custom)
    graph.weights_digest = stamped(source.text)
    for note in graph.notes:
        log.info("%s: %s", source.path, note)
    return graph


def unknown_fields(net: Message) -> list[str]:
    """Fields outside the schema, as ``name (lines 3, 8)``, in order of appearance."""
    found: dict[str, list[int]] = {}

    def visit(message: Message) -> None:
        for field in message.unknown:
            found.setdefault(field.name, []).append(message.source.where(field.start)[0])
        for values in message.values.values():
            for v in values:
                if isinstance(v.value, Message):
                    visit(v.value)

    visit(net)
    return [
        f"{name} (line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:4]))}{', ...' * (len(lines) > 4)})"
        for name, lines in found.items()
    ]
