"""chai layers: the layer types there are."""

from __future__ import annotations

import argparse
import inspect

from . import options, output, schema_parts, schemas

EPILOG = "a type that is missing here can be added: see 'Add a layer' in the README"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    from pathlib import Path

    parser.add_argument(
        "--custom",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="also load custom layers from this file or folder",
    )
    parser.add_argument("--json", action="store_true", help="as JSON")


def execute(args: argparse.Namespace) -> int:
    """Print every built-in and every registered custom type."""
    from .. import layers, plugins

    plugins.load_shipped()
    plugins.load_named()
    options.load_custom(args)
    found: list[schema_parts.LayerType] = []
    for name in layers.types():
        cls = layers.find(name)
        assert cls is not None
        module = inspect.getmodule(cls)
        summary = (module.__doc__ or "").strip().splitlines()[0].partition(": ")[2] if module else ""
        kind = (
            f"fork: {cls.fork}, no reference run"
            if cls.fork
            else "input"
            if cls.source
            else "training only"
            if cls.training_only
            else "caffe"
        )
        summary += f" [{kind}]" if cls.fork else ""
        found.append({"type": name, "kind": kind, "parameters": cls.message, "summary": summary})
    for name in plugins.REGISTRY.known():
        custom = plugins.REGISTRY.find(name)
        assert custom is not None
        about = custom.place + (f" (version {custom.version})" if custom.version else "")
        found.append({"type": name, "kind": "custom", "parameters": "xcustom_param", "summary": about})
    if args.json:
        output.as_json(schemas.Layers(layers=found))
        return 0
    output.table(
        ["type", "kind", "summary"], [[f["type"], f["kind"].partition(":")[0], f["summary"]] for f in found], "lll"
    )
    output.result(f"{len(found)} types")
    return 0
