"""chai show NET.chai: what a compiled network holds."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from ..codegen.chain import footprint
from ..offload.schedule import DeviceStep
from ..report.layer_rows import placed, table
from ..util.table import quantity
from . import options, output
from .parsing import refuse

if TYPE_CHECKING:
    from ..net import Net


def show(args: argparse.Namespace) -> int:
    """Print its layers in the order they run, and what an image goes through before them."""
    refuse(
        args,
        ("dot", "params", "engine", "batch", "autotune", "no_jit"),
        f"for {args.net}, which is compiled: it needs the prototxt",
        hint="name what it was compiled from",
    )
    net: Net = options.load_network(args, device="null", overlay=args.overlay)
    layers = placed(net)
    overlay = net.overlay
    assert overlay is not None
    steps = [step for step in net.schedule.steps if isinstance(step, DeviceStep)]
    tasks = [task for step in steps for task in step.tasks]
    memory = footprint([step.chain for step in steps if step.chain is not None])
    if args.json:
        output.as_json(
            "chai.show/1",
            network=net.name,
            file=str(args.net),
            inputs={b: list(net.shapes[b]) for b in net.inputs},
            outputs=net.outputs,
            overlay=overlay.name,
            build=overlay.build,
            layers=[asdict(layer) for layer in layers],
            tasks=len(tasks),
            segments=len(steps),
            activation_bytes={"peak": memory.activations, "total": memory.apart},
            constant_bytes=memory.constants,
            labels=len(net.card.labels),
        )
        return 0
    listed = table(net)
    output.table(listed.head, listed.rows, listed.align)
    macs = sum(task.macs(*(net.shapes_of(b) for b in task.inputs)) for task in tasks)
    output.result(f"compiled for {overlay.name} (build {overlay.build:08x}), batch {net.batch}")
    output.result(
        f"fpga     {len(tasks)} Tasks in {len(steps)} segment{'s' * (len(steps) != 1)}, {quantity(macs)} MACs"
    )
    output.result(f"memory   {memory}")
    for layer in layers:
        if layer.reason:
            output.result(f"why host {layer.name}: {layer.reason}")
    shape = net.shapes[net.inputs[0]]
    if len(shape) == 4 and shape[1] in (1, 3):
        output.result(f"images   {net.card.preprocess.describe(shape)}, {len(net.card.labels)} labels")
    if not args.quiet:
        output.say(f"next: chai run {args.net} -i IMAGE")
    return 0
