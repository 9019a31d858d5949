"""chai show: list the layers of a prototxt, of a plan for an overlay, or of a compiled network."""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..blob import Shape
from ..errors import UnsupportedNodes, UsageError
from ..graph import Graph
from ..overlay import host_model as host_models
from ..overlay.host_model import Span
from ..overlay.sections import LIMITS
from ..parser.caffemodel import Stored, check_fit
from ..passes.infer_shapes import infer_shapes
from ..report.diagram import dot_lines
from ..report.host_speed import PICTURE_SIZE, HostSpeed
from ..report.layer_rows import LayerRow, described, size, sizes, summary, total
from ..tasks.coarser import SENTENCE, listed
from ..text import number_of
from ..util.interpreter import Uncollected
from ..util.suggest import did_you_mean
from ..util.table import Table, quantity
from ..zoo import is_compiled
from ..zoo.locate import locate, read_network
from . import options, output
from .parsing import option, refuse, section
from .show_content import NetworkView, RefusedNetwork, RefusedNode, Show, of_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..net import Net
    from ..offload.cost import SegmentCost

EPILOG = """example:
  chai show googlenet --overlay pynq-z2 --html googlenet.html"""
RATE = "images/second"
Line = tuple[str, str, list[str]]  # label, sentence, list of details
OPTIONAL = ("format", "cycles", "params", "MACs", "out shape", "type")  # columns to drop on a narrow terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "chai show NET [WEIGHTS] [--overlay NAME] [--json | --dot] [--html FILE] [options]"
    options.network(parser)
    options.detector(parser)
    option(section(parser, "network"), "--batch N", "plan for N images per pass", type=options.count, default=1)
    options.execution(parser, device=False)
    option(
        section(parser, "device"),
        "--host-model FILE",
        "file of chai devices --measure (default: the overlay's manifest)",
        type=Path,
    )
    group = section(parser, "output")
    option(group, "--params", "add a column with the number of trained parameters")
    kind = group.add_mutually_exclusive_group()
    option(kind, "--json", "print JSON")
    option(kind, "--dot", "print a Graphviz graph")
    option(kind, "--listing", "print what the overlay fetches: instructions or descriptors")
    option(kind, "--source LAYER", "print the OpenCL source that is compiled for a custom layer, macros included")
    option(group, "--html FILE", "also draw the network, as one HTML page", type=output.file)


def execute(args: argparse.Namespace) -> int:
    """Print the network. With weights, check that they fit every layer."""
    if args.source:
        output.result(*_source(args).expandtabs(4).splitlines())
        return 0
    planned = args.overlay or args.engine or args.place != LIMITS
    look = _compiled if is_compiled(args.net) else _planned if planned else _unplanned
    try:
        with Uncollected():
            view = look(args)
    except UnsupportedNodes as error:
        if args.json:
            nodes = cast("list[RefusedNode]", [*error.nodes])
            output.as_json(RefusedNetwork(str(args.net), error.headline, nodes))
        raise
    if args.json:
        output.as_json(view.content)
    elif args.listing:
        output.result(*(line for segment in view.segments for line in segment.listing()))
    elif args.dot:
        output.result(*dot_lines(view.graph, view.content.layers))
    else:
        _print(view, args)
    if args.html:
        _save_page(args.html, view)
        output.say(f"wrote {args.html}")
    if not (args.quiet or args.json or args.dot or args.listing):
        known = view.content.compiled or view.content.weights  # without being typed
        known = known or all(layer.parameters == 0 for layer in view.content.layers)
        weights = f" {args.weights}" if args.weights else "" if known else " WEIGHTS"
        device = options.simulator(view.net.overlay) if view.content.compiled and view.net is not None else ""
        output.say(f"next: chai run {args.net}{weights} -i IMAGE{device}")
    return 0


# -- data


def _unplanned(args: argparse.Namespace) -> NetworkView:
    refuse(
        args,
        (*options.FORMATS, "autotune", "jit", "listing", "host_model"),
        "without an overlay: nothing is planned",
        hint="--overlay pynq-z2",
    )
    if args.json or args.dot:
        refuse(args, ("params",), "with --json, which has them" if args.json else "with --dot", hint="leave it out")
    graph, weights, shapes = _sized(args)
    if weights is not None:
        check_fit(graph, shapes, weights)
    content = Show(
        network=graph.name,
        file=graph.path,
        compiled=False,
        weights=weights is not None,
        **of_graph(graph, shapes),
        layers=described(graph, shapes),
    )
    outputs = {name: shapes[graph.latest[name]] for name in graph.outputs if graph.latest[name] in shapes}
    return NetworkView(content, graph, outputs)


def _sized(args: argparse.Namespace) -> tuple[Graph, Stored | None, dict[str, Shape]]:
    """Return the network, its weights, and the shapes of its blobs as far as they are known."""
    options.load_custom(args)
    files = locate(args.net, args.weights)
    graph, weights = read_network(
        *files, args.shapes, options.head(args), phase=args.phase, stages=args.stages, strict=args.strict
    )
    inputs = {**{b: (args.batch, *s[1:]) if s else s for b, s in graph.inputs.items()}, **args.shapes}
    return graph, weights, infer_shapes(graph, {b: s for b, s in inputs.items() if s}, partial=weights is None)


def _source(args: argparse.Namespace) -> str:
    refuse(
        args, (*options.EXECUTION, "host_model", "params", "html"), "with --source, which prints a layer's source alone"
    )
    graph, _, shapes = _sized(args)
    names = [layer.name for layer in graph.layers]
    if args.source not in names:
        near = did_you_mean(args.source, names) or "chai show lists them"
        raise UsageError(f"--source: there is no layer {args.source!r}", hint=near)
    layer = graph.layer(args.source)
    if any(bottom not in shapes for bottom in layer.bottoms):
        raise UsageError(f"--source: the sizes of layer {layer.name!r} are not known", hint="--shape BLOB=NxCxHxW")
    source = layer.opencl_source(*(shapes[b] for b in layer.bottoms))
    if source is None:
        what = f"layer {layer.name!r} ({layer.type}) is not computed by OpenCL"
        raise UsageError(f"--source: {what}", hint=layer.defined and f"its code is at {layer.defined}")
    return source


def _planned(args: argparse.Namespace) -> NetworkView:
    refuse(args, ("params", "dot"), "with --overlay, --engine or --place", hint="leave those out, or it")
    logging.getLogger("chai").setLevel(logging.ERROR)  # the summary line already reports missing weights
    net = options.load_network(args, device="null", batch=args.batch, **options.offload(args))
    brought = options.check_formats(args, net.graph)
    options.check_custom(args, net.graph)
    net.plan()
    formats = f"of its {net.graph.formats_in}" if brought else f"{args.bits}-bit {options.scheme(args)}, at first batch"
    return _on_overlay(net, net.graph.path, formats, args)


def _compiled(args: argparse.Namespace) -> NetworkView:
    refuse(
        args,
        ("dot", "params", "engine", "place", "batch", "autotune", "jit"),
        f"for {args.net}, which is compiled: it needs the prototxt",
        hint="name what it was compiled from",
    )
    net: Net = options.load_network(args, device="null", overlay=args.overlay)
    return _on_overlay(net, str(args.net), None, args)


def _on_overlay(net: Net, file: str, formats: str | None, args: argparse.Namespace) -> NetworkView:
    from .show_plan import on_overlay  # Tasks and what runs them, for this alone

    model = None if net.overlay is None else host_models.of_manifest(net.overlay.path)
    return on_overlay(net, file, formats, model if args.host_model is None else host_models.load(args.host_model))


# -- as text


def _print(view: NetworkView, args: argparse.Namespace) -> None:
    layers = view.content.layers
    listing = table(layers, args.params, sizes if not output.on_terminal() else _first)  # others: on lines of their own
    output.table(listing.head, listing.rows, listing.align, OPTIONAL, only_piped=listing.head[-1] == "reason")
    for layer in layers:
        if output.on_terminal() and len(layer.shapes) > 1:
            output.listed("shapes", f"of {layer.name}:", list(map(size, layer.shapes)))
    for label, text, items in _lines(view):
        output.listed(label, text, items)


def table(layers: list[LayerRow], params: bool = False, shapes: Callable[[LayerRow], str] = sizes) -> Table:
    """Return a table with a row per layer, without columns that are empty."""
    planned = any(row.format is not None for row in layers)
    columns: list[tuple[str, str, bool, Callable[[LayerRow], str]]] = [  # head, side, whether it is shown, cell
        ("layer", "l", True, lambda row: row.name),
        ("type", "l", True, lambda row: row.type),
        ("out shape", "l", True, shapes),
        ("MACs", "r", True, lambda row: _count(row.macs)),
        ("params", "r", params, lambda row: _count(row.parameters)),
        ("cycles", "r", planned, lambda row: _count(row.cycles)),
        ("engine", "l", True, lambda row: row.mark),
        ("format", "l", planned, lambda row: row.format or "-"),
        ("reason", "l", planned, lambda row: row.reason or ""),
    ]
    heads, sides, _, cells = zip(*[column for column in columns if column[2]])
    return Table(heads, [[cell(row) for cell in cells] for row in layers], "".join(sides))


def _first(row: LayerRow) -> str:
    first, *others = sizes(row).split(" ")
    return f"{first} +{len(others)}" if others else first


def _lines(view: NetworkView) -> Iterator[Line]:
    """Yield the lines about a network, most important first."""
    content = view.content
    if view.net is None:
        macs, parameters = total(r.macs for r in content.layers), total(r.parameters for r in content.layers)
        custom = sum(row.engine == "custom" for row in content.layers)
        words = f"{number_of(len(content.layers), 'layer')}, {macs} MACs, {parameters} parameters"
        yield "summary", words + (f", {custom} custom" if custom else ""), []
    else:
        yield "summary", summary(view.net, content.layers), []
        if content.compiled:
            yield "compiled", f"for {content.overlay} (build {content.build}), batch {content.batch}", []
        yield from _plan_lines(view, view.net)
    for name, whole in view.graph.composed.items():
        place = f", {whole.place}" if whole.place else ""
        yield "composed", f"{name} ({whole.type}{place}) of {len(whole.parts)}:", list(whole.parts)
    for row in content.layers:
        if row.defined:
            yield "custom", f"{row.name} ({row.type}): {row.defined}", []
        if row.implementation:
            yield "", f"runs as {row.implementation}", []
    if content.compiled and content.preprocess is not None:
        yield "images", f"{content.preprocess}, {number_of(content.labels or 0, 'label')}", []
    yield "outputs", "", [f"{name} {size(view.shapes.get(name))}" for name in content.outputs]
    for blob, shape in content.inputs.items():
        if shape is None:
            yield "?", f"the file does not say the size of input {blob}", []
    for note in content.notes:
        yield "note", note, []


def _plan_lines(view: NetworkView, net: Net) -> Iterator[Line]:
    content, overlay, plan = view.content, net.overlay, net.offload.plan
    assert overlay is not None
    if content.open_sums:
        yield "fpga?", "planned as if its sums fitted the accumulator, which its weights decide:", content.open_sums
    if plan.coarser:
        yield "coarser", f"{SENTENCE}:", listed(plan.coarser)
    if content.wide:
        yield "wide", f"sums of {overlay.wide_bits} bits, which take two cycles to requantise:", content.wide
    yield "fpga", f"{number_of(content.tasks or 0, 'Task')} in {number_of(content.segments or 0, 'segment')}", []
    yield "convert", f"{len(content.conversions or ())}:", content.conversions or []
    if content.merged:
        yield "merge", f"{len(content.merged)}:", [" + ".join(names) for names in content.merged]
    for reason, _ in Counter(row.reason for row in content.layers if row.reason).most_common():
        yield "why host", f"{reason}:", [row.name for row in content.layers if row.reason == reason]
    splits = content.splits
    for split in splits["by_reason"] if splits else ():
        yield "split", f"{split.reason}; {number_of(split.without, 'segment')} without:", split.layers
    if splits and splits["by_reason"]:
        yield "join", f"{number_of(splits['joined'], 'segment')} if all of these ran on the overlay", []
    yield "memory", str(view.memory), []
    if content.formats:
        yield "formats", content.formats, []
    yield from _cost_lines(view.costs)
    differ = [row.name for row in content.layers if row.layer_in]
    if differ:
        yield "", "read in the format they are written in, not in their layer_in:", differ
    if overlay.own is not None:
        yield "speed", overlay.own.speed(overlay, view.segments), []
    elif overlay.emulated:
        yield "speed", "not modelled: the overlay exists on the emulator alone", []
    else:
        clock = f"modelled at an assumed {overlay.clock_mhz:g} MHz ({overlay.name})"
        larger = f", {content.modelled_fps:.1f} at batch {content.batch}" if content.batch != 1 else ""
        speed = f"{content.modelled_fps_batch_1:.1f} images/second at batch 1{larger}"
        yield "speed", f"{speed}, on the overlay alone, {clock}", []
    if content.host is not None and not overlay.emulated:
        yield from _host_lines(content.host)


def _host_lines(host: HostSpeed) -> Iterator[Line]:
    """Yield what the host makes of the overlay's images a second."""
    alone, picture = host["alone"], host["picture"]
    yield "host", f"{_basis(host)}: {_span(alone['images_per_second'])} {RATE}", []
    overlapping = f"{_span(alone['overlapping'])} {RATE} in net.stream"
    yield "overlap", f"{overlapping}, where host and overlay have a thread each", []
    if picture is not None:
        more = f"{(picture['amount'] - alone['amount']) / 1e6:.1f} M more"
        if host["measured"]:
            more = f"{picture['ms'][0] - alone['ms'][0]:.2f} ms more"
        rates = f"{_span(picture['images_per_second'])} {RATE}, {_span(picture['overlapping'])} in net.stream"
        yield "picture", f"a JPEG of {PICTURE_SIZE} read for each image, {more}: {rates}", []
    if host["guessed"]:
        yield "guess", "layers whose type has no figures of its own:", host["guessed"]
    if host["left_out"]:
        yield "left out", "custom layers, whose time is not known:", host["left_out"]


def _cost_lines(costs: Sequence[SegmentCost]) -> Iterator[Line]:
    """Yield what several segments cost the processor, and which of them do not pay."""
    if len(costs) > 1:
        around = Span(*map(sum, zip(*(cost.around for cost in costs))))
        several = f"{number_of(len(costs), 'segment')} cost the processor"
        yield "cost", f"{several} {around} ms of starts, Packs and Unpacks, modelled", []
    dear = [cost for cost in costs if not cost.pays]
    if dear:
        ends = ("..".join(dict.fromkeys((cost.layers[0].name, cost.layers[-1].name))) for cost in dear)
        lines = [f"{layers}: on the host {cost}" for layers, cost in zip(ends, dear)]
        yield "cost", "modelled as no faster than the processor; --place cost moves there:", lines


def _span(numbers: Sequence[float], digits: int = 1) -> str:
    """Return the least and the most as text; one number if there is no difference."""
    least, most = (f"{number:.{digits}f}" for number in numbers)
    return least if least == most else f"{least} to {most}"


def _basis(host: HostSpeed) -> str:
    alone = host["alone"]
    if host["measured"]:
        return f"measured: {_span(alone['ms'], 2)} ms an image on {host['board'] or host['machine']}"
    cycles, assumed = host["cycles"] or (), host["assumed"]
    both = {
        ("clock_mhz", "cycles"): ", both assumed",
        ("cycles",): ", the cycles assumed",
        ("clock_mhz",): ", the clock assumed",
    }
    marked = both.get(tuple(key for key in ("clock_mhz", "cycles") if key in assumed), "")
    figures = f"{_span(cycles)} cycles each and {host['clock_mhz']:g} MHz{marked}, misses in the caches not counted"
    return f"modelled: {alone['amount'] / 1e6:.1f} M instructions of {host['machine']}, {figures}"


def _count(value: int | None) -> str:
    return "?" if value is None else quantity(value) if value else "-"


# -- as a page


def _save_page(path: Path, view: NetworkView) -> None:
    from ..report import network_page, page  # only for --html

    content = view.content
    title = f"{content.network} on {content.overlay}" if content.overlay else content.network
    picture = network_page.picture(view.graph, content.layers, view.net)
    listing = table(content.layers, params=True)
    page.save(path, network_page.html(title, _facts(view), picture, listing, output.plain_values(content)))


def _facts(view: NetworkView) -> dict[str, str]:
    facts = {"file": view.content.file}
    for label, text, items in _lines(view):
        words = " ".join([text, ", ".join(items)]).strip()
        facts[label] = f"{facts[label]}; {words}" if label in facts else words
    return facts
