"""chai show --overlay: which layer runs where, in which format, why, and how fast that would be."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from dataclasses import asdict
from typing import Any

from ..blob import show as shape_text
from ..codegen.chain import chain, footprint
from ..offload.cost import costs
from ..offload.formats import given
from ..offload.schedule import DeviceStep
from ..report.layer_rows import placed, summary
from ..util.table import quantity
from . import options, output
from .parsing import refuse


def show(args: argparse.Namespace) -> int:
    """Print the partition of a network for an overlay."""
    refuse(args, ("params", "dot"), "with --overlay or --engine", hint="leave those out, or it")
    logging.getLogger("chai").setLevel(logging.ERROR)  # the summary says that there are no weights
    net = options.load_network(args, device="null", batch=args.batch or 1, **options.offload(args))
    options.check_formats(args, net.graph)
    net.plan()
    placements = placed(net)
    layers = [asdict(layer) for layer in placements]
    total = sum(layer["cycles"] for layer in layers)
    clock = net.overlay.clock_mhz
    fps = clock * 1e6 / total * _batch(net) if total else 0.0
    views = net.schedule.views
    memory = footprint(
        [
            chain(net.overlay, step.tasks, net.offload.shapes, views, step.inputs, step.outputs)
            for step in net.schedule.steps
            if isinstance(step, DeviceStep)
        ]
    )
    conversions = net.schedule.conversions
    found = list(costs(net.schedule, net.overlay, net.offload.shapes))
    if args.json:
        output.as_json(
            "chai.show/1",
            network=net.name,
            file=net.graph.path,
            inputs={b: list(net.shapes[b]) for b in net.inputs},
            outputs=net.outputs,
            overlay=net.overlay.name,
            weights=net.trained,
            open_sums=[layer.name for layer in placements if layer.sum_open],
            layers=layers,
            conversions=[f"{c.type} {net.graph.caffe_name(c.blob)}" for c in conversions],
            cycles=total,
            merged=_merged(net),
            costs=[
                {"layers": [layer.name for layer in cost.layers], "fpga_ms": cost.fpga_ms, "host_ms": cost.host_ms}
                for cost in found
            ],
            activation_bytes={"peak": memory.activations, "total": memory.apart},
            constant_bytes=memory.constants,
            modelled_fps=fps,
        )
        return 0
    rows = [
        [
            layer["name"],
            layer["type"],
            " ".join(shape_text(s) for s in layer["shapes"]),
            quantity(layer["macs"]) if layer["macs"] else "-",
            quantity(layer["cycles"]) if layer["cycles"] else "-",
            layer["engine"] + "?" * layer["sum_open"],
            layer["format"],
        ]
        for layer in layers
    ]
    output.table(["layer", "type", "out shape", "MACs", "cycles", "engine", "format"], rows, "lllrrll")
    output.result(f"summary  {summary(net, placements)}")
    unsure = [layer.name for layer in placements if layer.sum_open]
    if unsure:
        output.result(
            f"fpga?    planned as if its sums fitted the accumulator, which its weights decide: {_some(unsure)}"
        )
    output.result(
        f"convert  {len(conversions)}: {', '.join(f'{c.type} {net.graph.caffe_name(c.blob)}' for c in conversions)}"
    )
    merged = _merged(net)
    if merged:
        output.result(f"merge    {len(merged)}: {_some([' + '.join(names) for names in merged])}")
    for reason, _ in Counter(layer["reason"] for layer in layers if layer["reason"]).most_common():
        names = [layer["name"] for layer in layers if layer["reason"] == reason]
        output.result(f"why host {reason}: {_some(names)}")
    output.result(f"memory   {memory}")
    formats = "of its precision_param" if given(net.graph) else f"{args.bits}-bit {args.scheme}, at first batch"
    output.result(f"formats  {formats}")
    for cost in found:
        ends = " .. ".join(dict.fromkeys((cost.layers[0].name, cost.layers[-1].name)))
        assumed = "assumed" if "host" in net.overlay.assumed else "the manifest's"
        output.result(f"cost     {ends}: on the host {cost}, by {assumed} figures")
    differ = [layer["name"] for layer in layers if layer["layer_in"]]
    if differ:
        output.result(f"         read in the format they are written in, not in their layer_in: {_some(differ)}")
    output.result(
        f"speed    {fps:.1f} images/second on the overlay alone, modelled at an assumed {clock:g} MHz ({net.overlay.name})"
    )
    if not args.quiet:
        output.say(f"next: chai run {options.named(args, net.weights is not None)} -i IMAGE")
    return 0


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _batch(net: Any) -> int:
    return int(next(iter(net.shapes.values()))[0])


def _merged(net: Any) -> list[list[str]]:
    """Return layers that run as one Task although none took in the other; the first one has the cycles."""
    known = {layer.name for layer in net.offload.graph.layers}
    tasks = (task for step in net.schedule.steps if isinstance(step, DeviceStep) for task in step.tasks)
    return [[n for n in task.origin if n in known] for task in tasks if task.output in net.schedule.shapes]
