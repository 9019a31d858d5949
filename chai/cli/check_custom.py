"""chai check NET --custom TYPE|PATH: compare each implementation of a network's custom layers with plain Python."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..errors import UsageError
from ..evaluate.check_custom import CustomReport, Row, check_layer
from ..plugins.layer import CustomLayer
from ..plugins.loading import KINDS, load_custom, load_named, lookup
from ..plugins.registry import REGISTRY
from ..zoo.locate import locate
from . import options, output


class CheckedWay(TypedDict):
    """Comparison of one way to run a custom layer with plain Python."""

    layer: str
    inputs: str
    way: str
    difference: float | None
    ms: float
    ok: bool
    note: str


@dataclass(frozen=True)
class CheckCustom(output.Schema):
    """Comparison of custom layers, in every way they can run, with plain Python."""

    schema = "chai.check.custom/1"
    network: str
    type: str
    ok: bool
    rows: list[CheckedWay]


def types(args: argparse.Namespace) -> list[str]:
    """Move the values of --custom that name a type, not a file, out of the arguments and return them.

    A name that is here, too, is a type if there is one of that name: a path like ./gemm is the folder.
    """
    bare = [p for p in args.custom if os.path.basename(p) == p and Path(p).suffix not in KINDS]
    here = [p for p in bare if os.path.exists(p)]
    if here:
        load_named()
        for place in (p for p in args.custom if p not in bare):
            load_custom(place)
    named = [p for p in bare if p not in here or lookup(REGISTRY, p) is not None]
    args.custom = [p for p in args.custom if p not in named]
    return named


def check(args: argparse.Namespace, names: Sequence[str]) -> int:
    """Check every layer of these types on random inputs of its own sizes. Return 1 if one disagrees.

    Without names, check those that the files of --custom define.
    """
    locate(args.net, args.weights)  # refuses a compiled network: it has no float layers
    net = options.load_network(args, device="float", batch=args.batch)
    layers = [layer for layer in net.graph.layers if isinstance(layer, CustomLayer)]
    wanted = names or _defined(args.custom, layers)
    chosen = [layer for layer in layers if layer.type in wanted or layer.key in wanted]
    missing = sorted(set(wanted) - {name for layer in chosen for name in (layer.type, layer.key)}) if names else []
    if missing or not chosen:
        named = (missing or args.custom)[0]
        what = f"{net.name} has no layer that it defines"
        if missing:
            path = f"the path is ./{named}" if os.path.exists(named) else "there is no such file"
            what = f"no custom layer of that type in {net.name}, and {path}"
        raise UsageError(
            f"--custom {named}: {what}",
            hint="custom types here: " + (", ".join(sorted({layer.key for layer in layers})) or "none"),
        )
    rows: list[Row] = []
    for layer in output.progress(chosen, len(chosen), "layers", args.quiet):
        rows += check_layer(layer, [net.shapes_of(b) for b in layer.bottoms])
    report = CustomReport(", ".join(names or sorted({layer.key for layer in chosen})), tuple(rows))
    if args.json:
        output.as_json(CheckCustom(network=net.name, **report.to_json()))
    else:
        output.result(*str(report).split("\n"))
        output.result("every way agrees" if report.ok else "some ways disagree")
    return 0 if report.ok else 1


def _defined(places: Sequence[str], layers: Sequence[CustomLayer]) -> set[str]:
    """Return the types of files and folders; of a folder, its classes of Python layers that the network has, too."""
    folders = [Path(place).resolve() for place in places if os.path.isdir(place)]
    inside = (layer.key for layer in layers if any(f in Path(layer.defined).parents for f in folders))
    return {*inside, *(type for place in places for type in load_custom(place).types)}
