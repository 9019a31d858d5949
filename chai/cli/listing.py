"""chai show NET.chai: what a compiled network holds."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from ..errors import UsageError
from ..graph import show as shape_text
from ..schedule import DeviceStep, HostStep
from ..table import quantity
from . import options, output

if TYPE_CHECKING:
    from ..compiled import CompiledNet


def show(args: argparse.Namespace) -> int:
    """Print its layers in the order they run, and what an image goes through before them."""
    if args.dot or args.engine:
        raise UsageError(f"{args.net} is compiled: --{'dot' if args.dot else 'engine'} needs the prototxt")
    net = cast("CompiledNet", options.load_network(args, device="null", overlay=args.overlay, batch=args.batch))
    layers = _layers(net)
    overlay = net.overlay
    assert overlay is not None
    tasks = [task for step in net.schedule.steps if isinstance(step, DeviceStep) for task in step.tasks]
    segments = sum(isinstance(step, DeviceStep) for step in net.schedule.steps)
    if args.json:
        output.as_json(
            "chai.show/1",
            network=net.name,
            file=str(args.net),
            inputs={b: list(net.shapes[b]) for b in net.inputs},
            outputs=net.outputs,
            overlay=overlay.name,
            build=overlay.build,
            layers=layers,
            tasks=len(tasks),
            segments=segments,
            labels=len(net.card.labels),
        )
        return 0
    rows = [
        [
            la["name"],
            la["type"],
            " ".join(shape_text(tuple(s)) for s in la["shapes"]),
            la["format"] or "-",
            la["engine"],
        ]
        for la in layers
    ]
    output.table(["layer", "type", "out shape", "format", "engine"], rows, "lllll")
    macs = sum(task.macs(*(net.shapes_of(b) for b in task.inputs)) for task in tasks)
    print(f"compiled for {overlay.name} (build {overlay.build:08x}), batch {net.batch}")
    print(f"fpga     {len(tasks)} Tasks in {segments} segments, {quantity(macs)} MACs")
    for layer in layers:
        if layer["reason"]:
            print(f"why host {output.printable(layer['name'])}: {output.printable(layer['reason'])}")
    shape = net.shapes[net.inputs[0]]
    if len(shape) == 4 and shape[1] in (1, 3):
        print(f"images   {net.card.preprocess.describe(shape)}, {len(net.card.labels)} labels")
    if not args.quiet:
        output.say(f"next: chai run {args.net} -i IMAGE")
    return 0


def _layers(net: CompiledNet) -> list[dict[str, Any]]:
    found = []
    for step in net.schedule.steps:
        for layer in (step.layer,) if isinstance(step, HostStep) else getattr(step, "layers", ()):
            format = (net.formats or {}).get(layer.tops[0])
            found.append(
                {
                    "name": layer.name,
                    "type": layer.type,
                    "shapes": [list(net.shapes_of(t)) for t in layer.tops],
                    "format": f"{format.scheme} {format.bits} bits" if format and layer.on_device else None,
                    "engine": layer.engine if isinstance(step, HostStep) else "fpga",
                    "reason": step.reason if isinstance(step, HostStep) else None,
                }
            )
    return found
