"""Read ONNX files: a network with its weights, as one more source of a Graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..blob import Shape
from ..graph import Graph
from ..graph.formats_file import apply
from ..parser.caffemodel import Stored
from ..parser.wire import Walk
from ..plugins.registry import Registry
from .convert import Converter
from .read import read_model
from .store import ModelBytes


def load_onnx(
    source: str | Path | bytes, custom: Registry, sizes: Mapping[str, Shape] | None = None, formats: Path | None = None
) -> tuple[Graph, Stored]:
    """Return the Graph of an ONNX file, or of its bytes, and its trained parameters, which are read when they are asked for.

    ``sizes`` are shapes of inputs in place of the file's, ``formats`` a file with formats of the layers. Raises ParseError,
    ModelError and UnsupportedNodes, which name the node, and OSError for a file that cannot be opened.
    """
    store = ModelBytes(source)
    with store.mapped() as buffer:
        model = read_model(Walk(buffer, store.path), store)
        graph, weights = Converter(model, custom, sizes or {}).run()
    if formats is not None and not isinstance(source, bytes):
        apply(formats, store.files, graph)
        graph.formats_in = ".formats.json"
    return graph, weights


def files_of(path: str | Path) -> list[str]:
    """Return the files that a model consists of: its own first, then those with its external data. Raises ParseError."""
    store = ModelBytes(path)
    with store.mapped() as buffer:
        read_model(Walk(buffer, store.path), store)
    return store.files
