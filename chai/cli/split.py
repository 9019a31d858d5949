"""chai show --overlay: which layer runs where, in which format, why, and how fast that would be."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from typing import Any

from ..cycles import cycles
from ..formats import given
from ..graph import show as shape_text
from ..plan import plan
from ..schedule import Convert, DeviceStep
from ..table import quantity
from . import options, output


def show(args: argparse.Namespace) -> int:
    """Print the partition of a network for an overlay."""
    logging.getLogger("chai").setLevel(logging.ERROR)  # random weights do for a plan
    net = options.load_network(args, device="null", batch=args.batch or 1, **options.offload(args))
    net.plan()
    layers = _layers(net)
    total = sum(layer["cycles"] for layer in layers)
    clock = net.overlay.clock_mhz
    fps = clock * 1e6 / total * _batch(net) if total else 0.0
    memory = plan(net.schedule, net.offload.shapes, net.overlay)
    conversions = [step for step in net.schedule.steps if isinstance(step, Convert)]
    if args.json:
        output.as_json(
            "chai.show/1",
            network=net.name,
            file=net.graph.path,
            inputs={b: list(net.shapes[b]) for b in net.inputs},
            outputs=net.outputs,
            overlay=net.overlay.name,
            layers=layers,
            conversions=[f"{c.kind} {net.graph.caffe_name(c.blob)}" for c in conversions],
            cycles=total,
            activation_bytes={"peak": memory.peak, "total": memory.total},
            modelled_fps=fps,
        )
        return 0
    rows = [
        [
            layer["name"],
            layer["type"],
            " ".join(shape_text(tuple(s)) for s in layer["shapes"]),
            quantity(layer["macs"]) if layer["macs"] else "-",
            quantity(layer["cycles"]) if layer["cycles"] else "-",
            layer["engine"],
        ]
        for layer in layers
    ]
    output.table(["layer", "type", "out shape", "MACs", "cycles", "engine"], rows, "lllrrl")
    engines = Counter(layer["engine"] for layer in layers)
    macs = sum(layer["macs"] for layer in layers) or 1
    on = sum(layer["macs"] for layer in layers if layer["engine"] == "fpga")
    host = engines["host"] + engines["custom"]
    print(f"summary  {engines['fpga']} layers fpga ({100 * on / macs:.1f} % of {quantity(macs)} MACs), {host} host")
    print(f"convert  {len(conversions)}: {', '.join(f'{c.kind} {net.graph.caffe_name(c.blob)}' for c in conversions)}")
    for reason, count in Counter(layer["reason"] for layer in layers if layer["reason"]).most_common():
        names = [layer["name"] for layer in layers if layer["reason"] == reason]
        print(
            f"why host {output.printable(reason)}: {', '.join(names[:3])}{f' and {count - 3} more' if count > 3 else ''}"
        )
    print(
        f"memory   {memory.peak / 1e6:.2f} MB of activations on the device, {memory.total / 1e6:.2f} MB without reuse"
    )
    formats = "of its precision_param" if given(net.graph) else f"{args.bits}-bit {args.scheme}, at first batch"
    print(f"formats  {formats}")
    print(
        f"speed    {fps:.1f} images/second on the overlay alone, modelled at an assumed {clock:g} MHz ({net.overlay.name})"
    )
    if not args.quiet:
        output.say(f"next: chai run {args.net} {args.weights or 'WEIGHTS'} -i IMAGE --device emulator")
    return 0


def _batch(net: Any) -> int:
    return int(next(iter(net.shapes.values()))[0])


def _layers(net: Any) -> list[dict[str, Any]]:
    """Every layer of the prototxt; one that a pass took in is where the other is, with no cycles of its own."""
    shapes = net.offload.shapes
    times: Counter[str] = Counter()
    for step in net.schedule.steps:
        if isinstance(step, DeviceStep):
            for task in step.tasks:
                times[task.origin[0]] += cycles(task, net.overlay, shapes)
    found = []
    partition = net.offload.partition
    known = {layer.name for segment in partition.segments for layer in segment.layers}
    standing = {name for segment in partition.segments for layer in segment.layers for name in layer.origin}
    for layer in net.graph.layers:
        bottoms = tuple(shapes[b] for b in layer.bottoms)
        tops = tuple(shapes[t] for t in layer.tops if t in shapes)
        engine = "input" if layer.source else partition.engine(layer.name) if layer.name in standing else "-"
        found.append(
            {
                "name": layer.name,
                "type": layer.type,
                "shapes": [list(t) for t in tops],
                "macs": layer.macs(bottoms, tops),
                "cycles": times[layer.name],
                "engine": layer.engine if engine == "host" else engine,
                "reason": partition.reasons.get(layer.name) if layer.name in known else None,
            }
        )
    return found
