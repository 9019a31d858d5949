"""chai layers: list the layer types that chai knows."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from ..text import number_of
from . import options, output
from .parsing import option, section

EPILOG = """examples:
  chai layers
  chai layers --custom my_layers.py

to add a type, see "Add a layer" in the README"""


class LayerType(NamedTuple):
    """A layer type."""

    type: str
    kind: str
    parameters: str | None
    summary: str


@dataclass(frozen=True)
class Layers(output.Schema):
    """All layer types."""

    schema = "chai.layers/1"
    layers: list[LayerType]


def arguments(parser: argparse.ArgumentParser) -> None:
    option(
        section(parser, "input"),
        "--custom PATH",
        "list the custom layers of this file or folder too; its code is run; repeatable",
        action="append",
        default=[],
        type=Path,
    )
    options.as_json(parser)


def execute(args: argparse.Namespace) -> int:
    """Print every built-in and every registered custom type."""
    from .. import layers
    from ..parser.assign import message_of
    from ..plugins import loading, registry

    loading.load_shipped()
    loading.load_named()
    options.load_custom(args)
    rows: list[LayerType] = []
    for name in layers.types():
        cls = layers.find(name)
        assert cls is not None
        module = inspect.getmodule(cls)
        head = ((module and module.__doc__) or "").splitlines()  # of a file with several types, a line for each
        summary = next((line.removeprefix(f"{name}: ") for line in head if line.startswith(f"{name}: ")), "")
        kinds = {"input": cls.source, "training only": cls.skipped, "loss or measure": cls.training_only, "caffe": True}
        kind = f"fork: {cls.fork}, no reference run" if cls.fork else next(name for name in kinds if kinds[name])
        summary += f" [{kind}]" if cls.fork else ""
        message = message_of(name) if fields(cls.Params) else None
        rows.append(LayerType(name, kind, message, summary))
    for name in registry.REGISTRY.known():
        custom = registry.REGISTRY.find(name)
        assert custom is not None
        about = custom.place + (f" (version {custom.version})" if custom.version else "")
        rows.append(LayerType(name, "custom", "xcustom_param", about))
    if args.json:
        output.as_json(Layers(rows))
        return 0
    output.table(["type", "kind", "summary"], [[f.type, f.kind.partition(":")[0], f.summary] for f in rows], "lll")
    output.result(number_of(len(rows), "type"))
    return 0
