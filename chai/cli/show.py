"""chai show: a network, layer by layer."""

from __future__ import annotations

import argparse
from math import prod
from typing import TYPE_CHECKING, Any, cast

from ..blob import Shape, show
from ..graph import Graph, Layer
from ..parser.caffemodel import Weights, check_fit
from ..passes.infer_shapes import infer_shapes
from ..util.table import quantity
from ..util.text import visible
from ..zoo.locate import is_compiled, locate, read_graph
from . import options, output
from .parsing import refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ..plugins import CustomLayer

EPILOG = """examples:
  chai show googlenet
  chai show googlenet --overlay pynq-z2
  chai show net.prototxt net.caffemodel --shape data=1x3x300x300
  chai show lenet --dot | dot -Tpng > lenet.png
  chai show net.chai"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    options.network(parser)
    parser.add_argument("--batch", type=int, metavar="N", help="images per pass (default: 1)")
    parser.add_argument("--params", action="store_true", help="also the number of trained parameters")
    options.execution(parser, device=False)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="as JSON")
    kind.add_argument("--dot", action="store_true", help="as a Graphviz graph")


def execute(args: argparse.Namespace) -> int:
    """Print the network. With weights, check that every layer finds its own."""
    if is_compiled(args.net):
        from . import listing

        return listing.show(args)
    if args.overlay or args.engine:
        from . import split

        return split.show(args)
    refuse(
        args,
        (*options.FORMATS, "autotune", "no_jit"),
        "without an overlay: nothing is planned",
        hint="--overlay pynq-z2",
    )
    if args.json or args.dot:
        refuse(args, ("params",), "with --json, which has them" if args.json else "with --dot", hint="leave it out")
    options.load_custom(args)
    path, weights = locate(args.net, args.weights)
    graph = read_graph(path, phase=args.phase, stages=args.stage, strict=args.strict)
    sizes = {b: (args.batch or 1, *s[1:]) if s else s for b, s in graph.inputs.items()}
    sizes.update(options.shapes(args.shape))
    shapes = infer_shapes(graph, {b: s for b, s in sizes.items() if s}, partial=weights is None)
    if weights is not None:
        check_fit(graph, shapes, Weights(weights))
    layers = list(_describe(graph, shapes))
    if args.json:
        output.as_json(
            "chai.show/1",
            network=graph.name,
            file=graph.path,
            inputs=_sizes(graph.inputs, shapes),
            outputs=graph.outputs,
            layers=layers,
        )
    elif args.dot:
        output.result(*_dot(graph, shapes))
    else:
        _print(graph, layers, shapes, args)
    return 0


def _sizes(blobs: Any, shapes: dict[str, Shape]) -> dict[str, list[int] | None]:
    return {b: list(shapes[b]) if b in shapes else None for b in blobs}


def _describe(graph: Graph, shapes: dict[str, Shape]) -> Iterator[dict[str, Any]]:
    """Yield each layer as in the JSON; what follows from an unknown input size is None."""
    for layer in graph.layers:
        outputs = [
            t for t in layer.tops if not layer.source or t in graph.inputs
        ]  # a label that no layer reads is none
        complete = shapes.keys() >= {*layer.bottoms, *outputs}
        bottoms = tuple(shapes[b] for b in layer.bottoms) if complete else ()
        tops = tuple(shapes[t] for t in outputs) if complete else ()
        yield {
            "name": layer.name,
            "type": layer.type,
            "bottoms": [graph.caffe_name(b) for b in layer.bottoms],
            "tops": [graph.caffe_name(t) for t in layer.tops],
            "shapes": [list(shapes[t]) if t in shapes else None for t in outputs],
            "macs": layer.macs(bottoms, tops) if complete else None,
            "parameters": 0 if layer.source else sum(map(prod, layer.weight_shapes(*bottoms))) if complete else None,
            "engine": "input" if layer.source else layer.engine,
            "defined": _custom(layer).custom.place if layer.engine == "custom" else None,
            "implementation": _implementation(layer, bottoms) if complete else None,
        }


def _implementation(layer: Layer, bottoms: tuple[Shape, ...]) -> str | None:
    """Return which of a custom layer's implementations runs, and why; None where there is one only."""
    if layer.engine != "custom" or len(_custom(layer).custom.implementations) == 1:
        return None
    return _custom(layer).choice(bottoms)


def _custom(layer: Layer) -> CustomLayer:
    return cast("CustomLayer", layer)


def _print(graph: Graph, layers: list[dict[str, Any]], shapes: dict[str, Shape], args: argparse.Namespace) -> None:
    rows = []
    for i, layer in enumerate(layers):
        top = " ".join(_size(s) for s in layer["shapes"]) or "-"
        row = [
            str(i),
            layer["name"],
            layer["type"],
            top,
            _count(layer["macs"]),
            layer["engine"],
        ]
        if args.params:
            row.insert(5, _count(layer["parameters"]))
        rows.append(row)
    head = ["#", "layer", "type", "out shape", "MACs", "engine"]
    if args.params:
        head.insert(5, "params")
    output.table(head, rows, "rlllr" + ("rl" if args.params else "l"))
    custom = [layer for layer in layers if layer["engine"] == "custom"]
    macs, parameters = (_total(layer[kind] for layer in layers) for kind in ("macs", "parameters"))
    output.result(
        f"summary  {len(layers)} layers, {macs} MACs, {parameters} parameters"
        + (f", {len(custom)} custom" if custom else "")
    )
    for layer in custom:
        output.result(f"custom   {layer['name']} ({layer['type']}): {layer['defined']}")
        if layer["implementation"]:
            output.result(f"         runs as {layer['implementation']}")
    outputs = ", ".join(f"{name} {_size(shapes.get(graph.latest[name]))}" for name in graph.outputs)
    output.result(f"outputs  {outputs}")
    for blob in (b for b in graph.inputs if b not in shapes):
        output.result(f"?        the file does not say the size of input {blob}")
    for note in graph.notes:
        output.result(f"note     {note}")
    if not args.quiet:
        output.say(f"next: chai run {options.named(args, locate(args.net, args.weights)[1] is not None)} -i IMAGE")


def _size(shape: Sequence[int] | None) -> str:
    return "?" if shape is None else show(tuple(shape))


def _count(value: int | None) -> str:
    return "?" if value is None else quantity(value) if value else "-"


def _total(values: Iterable[int | None]) -> str:
    """Return a sum as text; "?" if a part of it is not known."""
    parts = list(values)
    return "?" if None in parts else quantity(sum(filter(None, parts)))


def _dot(graph: Graph, shapes: dict[str, Shape]) -> list[str]:
    lines = ["digraph {", "  rankdir=TB; node [shape=box style=rounded fontname=Helvetica];"]
    writer: dict[str, int] = {}
    for i, layer in enumerate(graph.layers):
        top = _size(shapes.get(layer.tops[0])) if layer.tops else ""
        lines.append(f"  n{i} [label={_quoted(layer, top)}];")
        lines += [f"  n{writer[b]} -> n{i};" for b in layer.bottoms]
        writer.update(dict.fromkeys(layer.tops, i))
    return [*lines, "}"]


def _quoted(layer: Layer, top: str) -> str:
    """Return a DOT string; Graphviz reads escapes and HTML's entities in it."""
    lines = (visible(line) for line in (layer.name, f"{layer.type} {top}"))
    escaped = (s.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;") for s in lines)
    return '"' + "\\n".join(escaped) + '"'
