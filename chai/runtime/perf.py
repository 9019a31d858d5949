"""Where the time of a forward pass went: as CHaiDNN prints it, as tables, as JSON and as CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import fsum
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..util.files import complete
from ..util.log import logger
from ..util.table import Table, plain
from ..util.text import csv_cell, tell, visible

log = logger("chai.perf")
KINDS = ("fpga", "host", "custom", "unpack", "pack")  # whose time a step is; all but fpga are the host's
FORMS = {  # text for all layers and for each, decimals of a millisecond
    "chaidnn": (  # getPerfInfo in CHaiDNN's software/interface/xi_interface.cpp
        "[INFOx] Total Number of Custom layers : {0}\n\n",
        "[INFOx] Custom Layer - {} : {}\n"
        "[PERFM] Unpack layer Latency : {:f} ms\n"
        "[PERFM] Custom layer Latency : {:f} ms\n"
        "[PERFM] Pack   layer Latency : {:f} ms\n\n",
        6,
    ),
    "docs": (  # the sample in CHaiDNN's "Software Layer Plugin": two decimals at most, 0.0 for nothing
        "[PERFM] Performance with Batching : {1:.2f} Images/second\n[INFOx] Total number of Custom layers : {0}\n",
        "[PERFM] Custom Layer - {} : {}\n"
        "[PERFM] Unpack layer Latency : {} ms\n"
        "[PERFM] Custom layer Latency : {} ms\n"
        "[PERFM] Pack layer Latency : {} ms\n",
        2,
    ),
}
CSV = "layerwise_latency.csv"  # CHaiDNN's name, and its first two columns
COLUMNS = ("layer_name", "latency", "type", "engine", "share", "macs", "begin")


@dataclass(frozen=True)
class StepTime:
    """One step: its layer, what ran it, milliseconds, multiply-accumulates and bytes written (both per pass).

    ``reads`` and ``writes`` are blob ids; a Pack or Unpack reads and writes the same one. ``begin`` is in milliseconds
    from the start of the pass. ``device_ms`` of ``ms`` are those that an accelerator counted itself; None where none did.
    """

    name: str
    type: str
    engine: str
    ms: float
    macs: int
    bytes: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    begin: float = 0.0
    device_ms: float | None = None

    @property
    def kind(self) -> str:
        """The engine, or pack or unpack for a conversion between float32 and codes, which is the host's work."""
        return self.type.lower() if self.engine == "host" and self.type in ("Pack", "Unpack") else self.engine


class Share(NamedTuple):
    """Steps of one kind together: how many, milliseconds, percent of all steps' time."""

    steps: int
    ms: float
    percent: float


@dataclass(frozen=True)
class PerfInfo:
    """The steps of the last forward pass, in order; ``wall_ms`` is the whole pass, ``batch`` its images."""

    steps: tuple[StepTime, ...] = ()
    wall_ms: float = 0.0
    batch: int = 1
    peak_bytes: int = field(default=0)  # activations alive at once
    blob_bytes: int = field(default=0)  # all activations together

    @property
    def custom(self) -> tuple[StepTime, ...]:
        """The steps that a custom layer took."""
        return tuple(s for s in self.steps if s.engine == "custom")

    @property
    def images_per_second(self) -> float:
        """Throughput of this pass; 0 before the first one."""
        return self.batch * 1000 / self.wall_ms if self.wall_ms else 0.0

    @cached_property
    def steps_ms(self) -> float:
        """All steps together. Less than ``wall_ms``, unless host and device worked at the same time."""
        return fsum(s.ms for s in self.steps)

    @property
    def shares(self) -> dict[str, Share]:
        """The time of each of ``KINDS``. Every step counts once, so the milliseconds add up to ``steps_ms``."""
        found = {}
        for kind in KINDS:
            times = [s.ms for s in self.steps if s.kind == kind]
            found[kind] = Share(len(times), fsum(times), self._percent(fsum(times)))
        return found

    def conversions(self, step: StepTime) -> tuple[float, float]:
        """Milliseconds of unpacking what a step reads and of packing what it writes; 0 where nothing is converted.

        A blob is converted once, whoever reads it. A conversion that several layers share counts here for each of them
        in full: it is what the layer needs, and stays when the others leave the network. So these numbers do not add up
        over layers; ``shares`` does.
        """
        unpack = fsum(s.ms for s in self.steps if s.kind == "unpack" and not set(s.writes).isdisjoint(step.reads))
        pack = fsum(s.ms for s in self.steps if s.kind == "pack" and not set(s.reads).isdisjoint(step.writes))
        return unpack, pack

    def text(self, style: str = "chaidnn") -> str:
        """The custom layers with their conversions, in milliseconds, and a newline at the end.

        ``style`` "chaidnn" is what CHaiDNN prints, to the letter; its numbers are right where CHaiDNN's own are not: it
        looks at the neighbours in its queue, so it loses all but one Unpack of a layer with several bottoms, and repeats
        the previous layer's numbers for one without neighbours. "docs" is the form that CHaiDNN's documentation shows,
        which begins with the throughput. Raises UsageError for another style.
        """
        if style not in FORMS:
            raise UsageError(f"style {style!r}: expected {' or '.join(FORMS)}")
        head, form, digits = FORMS[style]
        text = head.format(len(self.custom), self.images_per_second)
        for i, step in enumerate(self.custom, 1):
            unpack, pack = self.conversions(step)
            text += form.format(i, visible(step.name), *(round(ms, digits) for ms in (unpack, step.ms, pack)))
        return text

    def tables(self) -> tuple[Table, Table]:
        """Every step, and the share of each kind of step."""
        steps = Table(("step", "type", "engine", "ms", "%", "MACs/s"), list(self._rows()), "lllrrr")
        shares = {**self.shares, "total": Share(len(self.steps), self.steps_ms, self._percent(self.steps_ms))}
        rows = [(kind, str(s.steps), f"{s.ms:.3f}", f"{s.percent:.1f}") for kind, s in shares.items() if s.steps]
        return steps, Table(("time of", "steps", "ms", "%"), rows, "lrrr")

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for s in self.steps:
            rate = f"{s.macs / s.ms / 1e6:.1f} G" if s.macs and s.ms else "-"
            yield s.name, s.type, s.engine, f"{s.ms:.3f}", f"{self._percent(s.ms):.1f}", rate

    def _percent(self, ms: float) -> float:
        return 100 * ms / (self.steps_ms or 1.0)

    def throughput(self) -> str:
        """One line: the whole pass, its images, images per second; and where an accelerator counted its own time, how much
        of the overlay's steps that was: the rest moved blobs and waited."""
        line = f"wall {self.wall_ms:.3f} ms   batch {self.batch}   {self.images_per_second:.2f} images/second"
        counted = [(s.device_ms, s.ms) for s in self.steps if s.device_ms is not None]
        if counted:
            own, whole = map(fsum, zip(*counted))
            line += f"   accelerator {own:.3f} of {whole:.3f} ms"
        return line

    def __repr__(self) -> str:
        return f"<PerfInfo: {len(self.steps)} steps, {self.throughput()}>"

    def __str__(self) -> str:
        return "\n\n".join([*(plain(t.head, t.rows, t.align) for t in self.tables()), self.throughput()])

    def _repr_html_(self) -> str:
        """In a notebook: a timeline, the share of each kind of step, and every step."""
        from ..util import html
        from .timeline import timeline

        if not self.steps:
            return html.notebook(html.paragraph("no forward pass was run yet"))
        steps, shares = self.tables()
        kinds = [(kind, share.percent) for kind, share in self.shares.items() if share.steps]
        parts = [html.paragraph(self.throughput()), timeline(self), html.markup(shares, [*kinds, ("", 0)])]
        bars = [(s.engine, self._percent(s.ms)) for s in self.steps]
        if len(bars) > html.MOST:
            longest = sorted(sorted(range(len(bars)), key=lambda i: -self.steps[i].ms)[: html.MOST])
            parts.append(html.paragraph(f"the {html.MOST} longest of {len(bars)} steps:"))
            steps = Table(steps.head, [steps.rows[i] for i in longest], steps.align)
            bars = [bars[i] for i in longest]
        return html.notebook(*parts, html.rows(steps, bars))

    def to_json(self) -> dict[str, Any]:
        """Numbers and names only, ready for json.dumps: the fields, and what ``text`` and ``tables`` say.

        ``custom_layers`` are {name, unpack_ms, custom_ms, pack_ms}, ``shares`` {kind: {steps, ms, percent}}.
        """
        custom = []
        for step in self.custom:
            unpack, pack = self.conversions(step)
            custom.append({"name": step.name, "unpack_ms": unpack, "custom_ms": step.ms, "pack_ms": pack})
        return {
            **asdict(self),
            "images_per_second": self.images_per_second,
            "steps_ms": self.steps_ms,
            "custom_layers": custom,
            "shares": {kind: share._asdict() for kind, share in self.shares.items()},
        }

    def write_csv(self, path: str | Path = CSV) -> None:
        """Write one row per step: CHaiDNN's two columns, then what chai knows besides.

        ``latency`` and ``begin`` are milliseconds, ``share`` percent of all steps' time. Names with commas or quotes are
        quoted, those that begin like a formula get a ' before them. The file appears complete or not at all.
        """
        import csv

        with complete(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(COLUMNS)
            for s in self.steps:
                share = f"{self._percent(s.ms):.3f}"
                rows.writerow(
                    (csv_cell(s.name), f"{s.ms:f}", csv_cell(s.type), s.engine, share, s.macs, f"{s.begin:f}")
                )


def getPerfInfo(net: Any, style: str = "chaidnn") -> PerfInfo:  # noqa: N802 - CHaiDNN's name
    """Print CHaiDNN's report of the custom layers of the last forward pass to stderr; return everything measured.

    ``style`` and the numbers are those of ``PerfInfo.text``. Before the first pass the layers are those of the network,
    their times 0, and a warning says so.
    """
    perf: PerfInfo = net.perf
    shown = perf
    if not perf.wall_ms:
        log.warning("%s: no forward pass was run yet, so nothing was measured", net.name)
        shown = PerfInfo(tuple(StepTime(x.name, x.type, x.engine, 0.0, 0, 0) for x in net.graph.layers))
    tell(sys.stderr, *shown.text(style).removesuffix("\n").split("\n"))
    return perf
