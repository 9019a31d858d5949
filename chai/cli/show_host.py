"""Lines about the host of a board: which figures they are of, and images a second from end to end."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..overlay import host_model as host_models
from ..overlay.host_model import HostModel, Span
from ..report.host_speed import PICTURE_SIZE, EndToEnd, HostSpeed
from .output import counted

if TYPE_CHECKING:
    from ..net import Net
    from ..offload.cost import SegmentCost

Line = tuple[str, str, list[str]]  # label, sentence, list of details
RATE = "images/second"


def host_model(args: argparse.Namespace, net: Net) -> HostModel | None:
    """Return the host model of --host-model, else that of the manifest; None if it has none. Raises ParseError and OSError."""
    if args.host_model is not None:
        return host_models.load(args.host_model)
    return None if net.overlay is None else host_models.of_manifest(net.overlay.path)


def host_lines(host: HostSpeed | None) -> Iterator[Line]:
    """Yield what the host makes of the overlay's images a second; nothing if no model says what it takes."""
    if host is None:
        return
    alone, picture = host["alone"], host["picture"]
    yield "host", f"{_basis(host)}: {span(alone['images_per_second'])} {RATE}", []
    yield "overlap", f"{span(alone['overlapping'])} {RATE} in net.stream, where host and overlay have a thread each", []
    if picture is not None:
        more = f"a JPEG of {PICTURE_SIZE} read for each image, {_more(host, alone, picture)}"
        rates = f"{span(picture['images_per_second'])} {RATE}, {span(picture['overlapping'])} in net.stream"
        yield "picture", f"{more}: {rates}", []
    if host["guessed"]:
        yield "guess", "layers whose type has no figures of its own:", host["guessed"]
    if host["left_out"]:
        yield "left out", "custom layers, whose time is not known:", host["left_out"]


def cost_lines(costs: Sequence[SegmentCost]) -> Iterator[Line]:
    """Yield what several segments cost the processor, and which of them do not pay."""
    if len(costs) > 1:
        around = Span(*map(sum, zip(*(cost.around for cost in costs))))
        several = f"{counted(len(costs), 'segment')} cost the processor"
        yield "cost", f"{several} {around} ms of starts, Packs and Unpacks, modelled", []
    dear = [cost for cost in costs if not cost.pays]
    if dear:
        ends = ("..".join(dict.fromkeys((cost.layers[0].name, cost.layers[-1].name))) for cost in dear)
        lines = [f"{layers}: on the host {cost}" for layers, cost in zip(ends, dear)]
        yield "cost", "modelled as no faster than the processor; --place cost moves there:", lines


def span(numbers: Sequence[float], digits: int = 1) -> str:
    """Return the least and the most as text; one number if there is no difference."""
    least, most = (f"{number:.{digits}f}" for number in numbers)
    return least if least == most else f"{least} to {most}"


def _basis(host: HostSpeed) -> str:
    """Return what the figures come from."""
    alone = host["alone"]
    if host["measured"]:
        return f"measured: {span(alone['ms'], 2)} ms an image on {host['board'] or host['machine']}"
    cycles, assumed = host["cycles"] or (), host["assumed"]
    both = {
        ("clock_mhz", "cycles"): ", both assumed",
        ("cycles",): ", the cycles assumed",
        ("clock_mhz",): ", the clock assumed",
    }
    marked = both.get(tuple(key for key in ("clock_mhz", "cycles") if key in assumed), "")
    figures = f"{span(cycles)} cycles each and {host['clock_mhz']:g} MHz{marked}, misses in the caches not counted"
    return f"modelled: {alone['amount'] / 1e6:.1f} M instructions of {host['machine']}, {figures}"


def _more(host: HostSpeed, alone: EndToEnd, picture: EndToEnd) -> str:
    if host["measured"]:
        return f"{picture['ms'][0] - alone['ms'][0]:.2f} ms more"
    return f"{(picture['amount'] - alone['amount']) / 1e6:.1f} M more"
