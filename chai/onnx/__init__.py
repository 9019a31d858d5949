"""Read ONNX files: a network with its weights, as one more source of a Graph.

store       the file's bytes, and files of external data
fields      messages of protobuf, by the schema in proto/
constants   tensors, and trained parameters made of them
read        nodes, tensors, inputs and outputs
match       groups of nodes that one layer computes
expand      nodes on codes, as nodes on numbers between codes
fold        nodes of constants, computed by numpy
codes       what codes stand for, and constants made of them
node        what an operator's file sees of a node
ops         one file for each operator or family
formats     formats of layers, from the codes of their blobs
convert     nodes to layers, with the shapes of blobs
refusal     what cannot run, as one error
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..blob import Shape
from ..graph import Graph
from ..graph.formats_file import apply
from ..parser.wire import Walk
from ..plugins.registry import Registry
from .constants import OnnxWeights
from .convert import Converter
from .read import read_model
from .store import ModelBytes


def load_onnx(
    source: str | Path | bytes,
    custom: Registry,
    sizes: Mapping[str, Shape] | None = None,
    formats: Path | None = None,
) -> tuple[Graph, OnnxWeights]:
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
