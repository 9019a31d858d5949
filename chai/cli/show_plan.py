"""The content of chai show for a network that is planned for an overlay, or compiled for one."""

from __future__ import annotations

from ..codegen.compile import executable, footprint
from ..net import Net
from ..offload.cost import costs
from ..offload.partition import joined, splits
from ..overlay.host_model import HostModel
from ..report.host_speed import host_speed
from ..report.host_work import host_work
from ..report.layer_rows import placed
from ..tasks.conv import Conv
from .show_content import CostRow, NetworkView, Show, of_graph


def on_overlay(net: Net, file: str, formats: str | None, model: HostModel | None) -> NetworkView:
    """Return the NetworkView of a planned network. ``formats`` names the source of its formats; None if it is compiled."""
    overlay, plan = net.overlay, net.offload.plan
    assert overlay is not None
    steps = net.schedule.segments
    views, shapes = net.schedule.views, plan.device_shapes
    chains = [*net.schedule.compiled(overlay, shapes)]
    estimates = () if model is None else tuple(costs(net.schedule, chains, overlay, shapes, model))
    layers = placed(net, chains)
    memory = footprint(chains)
    cycles = alone = 0 if overlay.emulated else sum(chain.cycles for chain in chains)
    if net.batch != 1 and overlay.own is not None and formats is None:
        alone = 0  # a file's instructions are for its batch
    elif net.batch != 1 and cycles:
        one = {blob: (1, *shape[1:]) for blob, shape in shapes.items()}
        alone = sum(executable(s.work(overlay, one, views)).cycles for s in steps)
    per_second = overlay.clock_mhz * 1e6
    conversions = net.schedule.conversions
    first = net.shapes[net.inputs[0]]
    picture = len(first) == 4 and first[1] in (1, 3)
    fpga_ms = cycles / per_second * 1000
    names = {layer.name for layer in net.offload.graph.layers}
    # each Task with the layers that it runs, without fused ones; the first of several has the cycles
    tasks = [(task, [name for name in task.origin if name in names]) for step in steps for task in step.tasks]
    rows = [CostRow([layer.name for layer in c.layers], [*c.fpga], [*c.around], [*c.instead]) for c in estimates]
    content = Show(
        network=net.name,
        file=file,
        compiled=formats is None,
        weights=net.trained,
        **of_graph(net.graph, net.shapes),
        layers=layers,
        preprocess=net.card.preprocess.describe(first) if picture else None,
        labels=len(net.card.labels),
        overlay=overlay.name,
        build=f"{overlay.build:08x}",
        batch=net.batch,
        formats=formats,
        open_sums=[layer.name for layer in layers if layer.sum_open],
        coarser=dict(plan.coarser),
        wide=[" + ".join(names) for task, names in tasks if isinstance(task, Conv) and task.wide],
        conversions=[f"{c.type} {net.graph.caffe_name(c.blob)}" for c in conversions],
        merged=[names for task, names in tasks if len(names) > 1 and task.output in net.schedule.shapes],
        tasks=len(tasks),
        segments=len(steps),
        splits={"by_reason": splits(plan), "joined": joined(plan)},
        cycles=cycles,
        modelled_fps=per_second / cycles * net.batch if cycles else 0.0,
        modelled_fps_batch_1=per_second / alone if alone else 0.0,
        host=host_speed(model, host_work(net.offload, chains), net.batch, fpga_ms, picture) if model else None,
        costs=rows if model else None,
        activation_bytes={"peak": memory.activations, "total": memory.apart},
        constant_bytes=memory.constants,
    )
    return NetworkView(content, net.graph, net.shapes, net, estimates, memory, (*chains,))
