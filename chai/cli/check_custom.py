"""chai check NET --custom TYPE: compare each implementation of a network's custom layers with plain Python."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import UsageError
from ..evaluate.check_custom import CustomReport, Row, check_layer
from ..plugins import CustomLayer
from ..zoo.locate import locate
from . import options, output, schemas


def types(args: argparse.Namespace) -> list[str]:
    """Move the values of --custom that name a type, not a file, out of the arguments and return them."""
    named = [str(p) for p in args.custom if not p.exists() and p.suffix != ".py" and p == Path(p.name)]
    args.custom = [p for p in args.custom if str(p) not in named]
    return named


def check(args: argparse.Namespace, names: list[str]) -> int:
    """Check every layer of these types on random inputs of its own sizes. Return 1 if one disagrees."""
    locate(args.net, args.weights)  # refuses a compiled network: it has no float layers
    net = options.load_network(args, device="float", batch=args.batch)
    layers = [layer for layer in net.graph.layers if isinstance(layer, CustomLayer)]
    chosen = [layer for layer in layers if layer.type in names or layer.key in names]
    missing = sorted(set(names) - {name for layer in chosen for name in (layer.type, layer.key)})
    if missing:
        raise UsageError(
            f"--custom {missing[0]}: no custom layer of that type in {net.name}, and no such file",
            hint="custom types here: " + (", ".join(sorted({layer.key for layer in layers})) or "none"),
        )
    rows: list[Row] = []
    for layer in output.progress(chosen, len(chosen), "layers", args.quiet):
        rows += check_layer(layer, [net.shapes_of(b) for b in layer.bottoms])
    report = CustomReport(", ".join(names), tuple(rows))
    if args.json:
        output.as_json(schemas.CheckCustom(network=net.name, **report.to_json()))
    else:
        output.result(*str(report).split("\n"))
        output.result("every way agrees" if report.ok else "some ways disagree")
    return 0 if report.ok else 1
