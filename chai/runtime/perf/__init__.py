"""Timing of a forward pass: as CHaiDNN prints it, as tables, as JSON and as CSV."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from math import ceil, fsum
from typing import TYPE_CHECKING, Any, NamedTuple

from ...blob import Shape
from ...errors import UsageError
from ...text import csv_cell, number_of, tell, visible
from ...util import html
from ...util.files import complete
from ...util.log import logger
from ...util.table import Table, plain
from ..times import StepTime as StepTime, Times, labelled
from .composed import Entry, conversions, entries
from .picture import picture

if TYPE_CHECKING:
    from pathlib import Path


log = logger("chai.perf")
KINDS = ("fpga", "host", "custom", "unpack", "pack")  # of a step; all but fpga are time of the host
OUTSIDE = ("feed", "between")  # parts of a pass outside of its steps, on the host
FORMS = {  # text for all layers, for each, and after it; decimals of a millisecond
    "chaidnn": (  # getPerfInfo in CHaiDNN's software/interface/xi_interface.cpp
        "[INFOx] Total Number of Custom layers : {0}\n\n",
        "[INFOx] Custom Layer - {} : {}\n"
        "[PERFM] Unpack layer Latency : {:f} ms\n"
        "[PERFM] Custom layer Latency : {:f} ms\n"
        "[PERFM] Pack   layer Latency : {:f} ms\n",
        "\n",
        6,
    ),
    "docs": (  # the sample in CHaiDNN's "Software Layer Plugin": two decimals at most, 0.0 for nothing
        "[PERFM] Performance with Batching : {1:.2f} Images/second\n[INFOx] Total number of Custom layers : {0}\n",
        "[PERFM] Custom Layer - {} : {}\n"
        "[PERFM] Unpack layer Latency : {} ms\n"
        "[PERFM] Custom layer Latency : {} ms\n"
        "[PERFM] Pack layer Latency : {} ms\n",
        "",
        2,
    ),
}
CSV = "layerwise_latency.csv"  # CHaiDNN's name, and its first two columns
COLUMNS = ("layer_name", "latency", "type", "engine", "share", "macs", "begin")


class Spread(NamedTuple):
    """Milliseconds of several passes: median, minimum and 90th percentile."""

    median: float
    min: float
    p90: float


def spread(times: Sequence[float]) -> Spread:
    """Return median, minimum and 90th percentile (nearest rank) of one or more times."""
    ordered = sorted(times)
    return Spread(_median(ordered), ordered[0], ordered[ceil(0.9 * len(ordered)) - 1])


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


class Share(NamedTuple):
    """All steps of one kind: their number, milliseconds, percent of all rows' time."""

    steps: int
    ms: float
    percent: float


@dataclass(frozen=True)
class PerfInfo(Times):
    """The steps of a forward pass, in order; ``wall_ms`` is the whole pass, ``batch`` its images.

    ``wall_ms`` is from the call of ``forward`` to its return, without the preparation for a new input size. It includes
    ``feed_ms`` before the first step (checking the inputs) and ``between_ms`` between the steps and after the last one
    (looking up, keeping and dropping blobs). ``peak_bytes`` are the activations alive at once, ``blob_bytes`` all of them. A
    ``summary`` has its single passes in ``passes``. ``composed`` are the network's composed layers, which have no step of
    their own: their parts have.
    """

    peak_bytes: int = 0
    passes: tuple[PerfInfo, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, times: Times) -> PerfInfo:
        """Return the times of a pass, to be shown."""
        return cls(**{**vars(times), "peak_bytes": int(times.peak_bytes)})

    @property
    def custom(self) -> tuple[StepTime, ...]:
        """Steps of custom layers."""
        return tuple(s for s in self.steps if s.engine == "custom")

    @property
    def ms_per_image(self) -> float:
        """Return ``wall_ms`` divided by the images of the pass."""
        return self.wall_ms / self.batch

    @property
    def images_per_second(self) -> float:
        """Throughput of this pass; 0 before the first one."""
        return self.batch * 1000 / self.wall_ms if self.wall_ms else 0.0

    @cached_property
    def steps_ms(self) -> float:
        """Sum of all steps. Less than ``wall_ms``, unless host and device worked in parallel."""
        return fsum(s.ms for s in self.steps)

    @cached_property
    def total_ms(self) -> float:
        """Return the sum of all ``rows``; for several passes the median of their sums."""
        if self.passes:
            return _median(p.total_ms for p in self.passes)
        return fsum((self.steps_ms, self.feed_ms, self.between_ms))

    @property
    def saturation(self) -> float | None:
        """Return the percent of saturated codes at the overlay's borders; None if the network brought its formats."""
        return 100 * self.saturated / self.converted if self.converted else None

    @property
    def rows(self) -> tuple[StepTime, ...]:
        """Rows of all tables: ``feed``, the steps, ``between``. The first and the last only if they took any time."""
        feed, between = (StepTime(n, n, "host", ms, 0, 0) for n, ms in zip(OUTSIDE, (self.feed_ms, self.between_ms)))
        return (*((feed,) if feed.ms else ()), *self.steps, *((between,) if between.ms else ()))

    @property
    def shares(self) -> dict[str, Share]:
        """Return the time of each of ``KINDS`` and ``OUTSIDE``. Every row counts once: they add up to ``total_ms``."""
        shares = {}
        for kind in KINDS:
            times = [s.ms for s in self.steps if s.kind == kind]
            shares[kind] = Share(len(times), fsum(times), self._percent(fsum(times)))
        for kind, ms in zip(OUTSIDE, (self.feed_ms, self.between_ms)):
            shares[kind] = Share(0, ms, self._percent(ms))
        return shares

    def conversions(self, step: StepTime) -> tuple[float, float]:
        """Return the milliseconds of unpacking a step's inputs and of packing its outputs; 0 without conversion.

        A blob is converted once for all its readers, but the conversion counts here in full for each layer that needs
        it, as it would remain without the others. So these numbers do not add up over layers; those of ``shares`` do.
        """
        return conversions(step, self.steps)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Custom and composed layers, in order, with their conversions."""
        return tuple(entries(self.steps, self.composed))

    def text(self, style: str = "chaidnn") -> str:
        """Return a report of custom layers with their conversions in milliseconds, with a newline at the end.

        ``style`` "chaidnn" has exactly the text that CHaiDNN prints. The numbers are correct where CHaiDNN's are not: it
        uses the neighbours in its queue, so it misses all but one Unpack of a layer with several bottoms, and repeats
        the previous layer's numbers for a layer without neighbours. ``style`` "docs" is the form in CHaiDNN's
        documentation, which begins with the throughput. A composed layer is shown as a custom one, with a line for each
        of its steps. Raises UsageError for another style.
        """
        if style not in FORMS:
            raise UsageError(f"style {style!r}: expected {' or '.join(FORMS)}")
        head, form, end, digits = FORMS[style]
        listed = self.entries
        text = head.format(len(listed), self.images_per_second)
        for i, entry in enumerate(listed, 1):
            times = (round(ms, digits) for ms in (entry.unpack, entry.own, entry.pack))
            text += form.format(i, visible(entry.name), *times) + "".join(_parts(entry, digits)) + end
        return text

    def tables(self) -> tuple[Table, Table]:
        """Return a table of all rows and one of the shares by kind; with minimum and p90 for several passes."""
        ms = ("ms", "min", "p90") if self.passes else ("ms",)
        steps = Table(("step", "type", "engine", *ms, "%", "MACs/s"), list(self._rows()), "lll" + "r" * (len(ms) + 2))
        total = Share(len(self.steps), self.total_ms, 100.0 if self.total_ms else 0.0)
        rows = []
        for kind, share in (*self.shares.items(), ("total", total)):
            if share.steps or share.ms:
                times = [p.total_ms if kind == "total" else p.shares[kind].ms for p in self.passes or (self,)]
                rows.append((self._engine(kind), str(share.steps or "-"), *self._cells(times), f"{share.percent:.1f}"))
        for name in self.composed:
            named = [e for p in self.passes or (self,) for e in p.entries if e.name == name]
            times = [e.own for e in named]
            percent = self._percent(spread(times).median) if times else 0.0
            rows.append((name, str(len(named[-1].steps)), *self._cells(times), f"{percent:.1f}"))
        return steps, Table(("time of", "steps", *ms, "%"), rows, "l" + "r" * (len(ms) + 2))

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for row, times in zip(self.rows, self._times()):
            rate = f"{row.macs / row.ms / 1e6:.1f} G" if row.macs and row.ms else "-"
            kind = "-" if row.type in OUTSIDE else row.type
            yield row.name, kind, self._engine(row.engine), *self._cells(times), f"{self._percent(row.ms):.1f}", rate

    def _engine(self, engine: str) -> str:
        """Return the name of an engine; a device that emulates or simulates the overlay has its own."""
        return self.emulation.word if engine == "fpga" and self.emulation is not None else engine

    def _times(self) -> list[list[float]]:
        """Return the milliseconds of each row in every pass."""
        passes = [dict(labelled(p.rows)) for p in self.passes or (self,)]
        return [[rows[label].ms for rows in passes if label in rows] for label, _ in labelled(self.rows)]

    def _cells(self, times: list[float]) -> list[str]:
        return [f"{ms:.3f}" for ms in (spread(times) if self.passes else times)]

    def _percent(self, ms: float) -> float:
        return 100 * ms / (fsum((self.steps_ms, self.feed_ms, self.between_ms)) or 1.0)

    def throughput(self) -> str:
        """Return one line: time of the pass, images, images per second; on an emulator also those of the modelled overlay.

        If an accelerator measured its own time, its share of the overlay's steps follows: the rest is moving blobs and waiting.
        """
        line = f"wall {self.wall_ms:.3f} ms"
        if self.passes:
            _, least, p90 = spread([p.wall_ms for p in self.passes])
            line += f" (median of {number_of(len(self.passes), 'pass')}, min {least:.3f}, p90 {p90:.3f})"
        line += f"   batch {self.batch}   {self.ms_per_image:.3f} ms/image   {self.images_per_second:.2f} images/second"
        if (overlay := self.emulation) is not None and overlay.images_per_second:
            line += f" on this machine, {overlay.images_per_second:.2f} modelled on the overlay alone"
        counted = [(s.device_ms, s.ms) for s in self.steps if s.device_ms is not None]
        if counted:
            device, whole = map(fsum, zip(*counted))
            line += f"   accelerator {device:.3f} of {whole:.3f} ms"
        if self.saturation is not None:
            line += f"   {self.saturation:.2g} % of codes saturated"
        return line

    def __repr__(self) -> str:
        return f"<PerfInfo: {number_of(len(self.steps), 'step')}, {self.throughput()}>"

    def __str__(self) -> str:
        return "\n\n".join([*(plain(t.head, t.rows, t.align) for t in self.tables()), self.throughput()])

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a timeline, the share of each kind of step, and every step."""
        if not self.steps:
            return html.notebook(html.paragraph("no forward pass was run yet"))
        steps, shares = self.tables()
        kinds = [(kind, share.percent) for kind, share in self.shares.items() if share.steps or share.ms]
        parts = [html.paragraph(self.throughput()), picture(self.steps), html.markup(shares, [*kinds, ("", 0)])]
        bars = [(row.engine, self._percent(row.ms)) for row in self.rows]
        if len(bars) > html.MOST:
            longest = sorted(sorted(range(len(bars)), key=lambda i: -bars[i][1])[: html.MOST])
            parts.append(html.paragraph(f"the {html.MOST} longest of {len(bars)} rows:"))
            steps = Table(steps.head, [steps.rows[i] for i in longest], steps.align)
            bars = [bars[i] for i in longest]
        return html.notebook(*parts, html.rows(steps, bars))

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and the content of ``text`` and ``tables``, as numbers and strings for json.dumps.

        ``custom_layers`` are {name, unpack_ms, custom_ms, pack_ms, parts}, the last the names of a composed layer's
        steps; ``shares`` are {kind: {steps, ms, percent}}. ``passes`` counts those measured; ``wall`` and, in the order
        of the table, ``rows`` have {median, min, p90} of them.
        """
        custom = []
        for e in self.entries:
            ms = {"unpack_ms": e.unpack, "custom_ms": e.own, "pack_ms": e.pack}
            custom.append({"name": e.name, **ms, "parts": [step.name for step in (*e.steps, *e.shared)]})
        overlay = self.emulation
        return {
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("composed", "emulation")},
            "steps": tuple(step._asdict() for step in self.steps),
            "emulated": None if overlay is None else overlay.word,
            "modelled_images_per_second": None if overlay is None else overlay.images_per_second,
            "ms_per_image": self.ms_per_image,
            "images_per_second": self.images_per_second,
            "steps_ms": self.steps_ms,
            "total_ms": self.total_ms,
            "passes": len(self.passes) or (1 if self.steps else 0),
            "wall": spread([p.wall_ms for p in self.passes or (self,)])._asdict(),
            "rows": [{"name": r.name, **spread(times)._asdict()} for r, times in zip(self.rows, self._times())],
            "custom_layers": custom,
            "shares": {kind: share._asdict() for kind, share in self.shares.items()},
        }

    def write_csv(self, path: str | Path = CSV) -> None:
        """Write one line per row: CHaiDNN's two columns, then chai's additional ones.

        ``latency`` and ``begin`` are milliseconds, ``share`` percent of all rows' time; ``between`` has no ``begin``. For
        several passes ``latency`` is the median, and ``min`` and ``p90`` follow. Names with commas or quotes are quoted,
        those that begin like a formula are prefixed with '. The file is written atomically.
        """
        import csv

        with complete(path) as part, open(part, "w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow((*COLUMNS, "min", "p90") if self.passes else COLUMNS)
            for row, times in zip(self.rows, self._times()):
                share, begin = f"{self._percent(row.ms):.3f}", "" if row.type == "between" else f"{row.begin:f}"
                more = [f"{ms:f}" for ms in spread(times)[1:]] if self.passes else []
                rows.writerow(
                    (csv_cell(row.name), f"{row.ms:f}", csv_cell(row.type), self._engine(row.engine), share)
                    + (row.macs, begin, *more)
                )


def summary(passes: Sequence[PerfInfo]) -> PerfInfo:
    """Return the medians of several passes over the same sizes, row by row; their sum is about the median pass."""
    if len(passes) == 1:
        return passes[0]
    steps = [dict(labelled(p.steps)) for p in passes]
    medians = tuple(
        step._replace(ms=_median([rows[label].ms for rows in steps if label in rows]))
        for label, step in labelled(passes[-1].steps)
    )
    wall, feed, between = (_median([getattr(p, name) for p in passes]) for name in ("wall_ms", "feed_ms", "between_ms"))
    return replace(passes[-1], steps=medians, wall_ms=wall, feed_ms=feed, between_ms=between, passes=tuple(passes))


@dataclass
class Speeds:
    """The passes of a run by input size; ``measured`` is the pass, or summary of passes, for --perf.

    One definition for all printed speeds: milliseconds of a pass divided by its images, for several passes the median.
    The first pass of a size is warm-up and counts only if there is no other.
    """

    passes: dict[tuple[Shape, ...], list[PerfInfo]] = field(default_factory=dict)
    measured: PerfInfo | None = None

    def add(self, sizes: tuple[Shape, ...], perf: PerfInfo) -> None:
        self.passes.setdefault(sizes, []).append(perf)

    @property
    def codes(self) -> tuple[int, int]:
        """Return how many codes all passes converted, and how many of them were saturated."""
        passes = [*chain(*self.passes.values())]
        return sum(p.converted for p in passes), sum(p.saturated for p in passes)

    @property
    def warm(self) -> list[PerfInfo]:
        """All passes but the first of each size."""
        return [perf for passes in self.passes.values() for perf in passes[1:]]

    @property
    def ms_per_image(self) -> float:
        """Return the printed speed; 0 without any pass."""
        if self.measured is not None:
            return self.measured.ms_per_image
        return _median(p.ms_per_image for p in self.warm or chain(*self.passes.values())) if self.passes else 0.0

    def __str__(self) -> str:
        first = "" if self.warm or self.measured is not None else " in the first pass"
        return f"{self.ms_per_image:.1f} ms/image{first}"


def _parts(entry: Entry, digits: int) -> Iterator[str]:
    """Yield a line for each step of a composed layer."""
    for step in entry.steps:
        yield f"[PERFM]   {visible(step.name)} ({step.engine}) Latency : {round(step.ms, digits):.{digits}f} ms\n"
    for step in entry.shared:
        yield f"[PERFM]   {visible(step.name)} ({step.engine}), together with other layers\n"


def getPerfInfo(net: Any, style: str = "chaidnn") -> PerfInfo:  # noqa: N802 - CHaiDNN's name
    """Print CHaiDNN's report of the custom layers of the last forward pass to stderr; return everything measured.

    ``style`` and the numbers are those of ``PerfInfo.text``. Before the first pass the times of the network's layers
    are 0, with a warning.
    """
    perf = getattr(net, "perf", None)
    if not isinstance(perf, PerfInfo):
        hint = "chai.chaidnn.getPerfInfo takes the handles of xiInit"
        raise UsageError(f"getPerfInfo: expected a network, found {type(net).__name__}", hint=hint)
    shown = perf
    if not perf.wall_ms:
        net = getattr(net, "net", net)  # of pycaffe's
        log.warning("%s: no forward pass was run yet, so nothing was measured", net.name)
        steps = [StepTime(x.name, x.type, x.engine, 0.0, 0, 0, layers=x.origin) for x in net.graph.layers]
        shown = PerfInfo(tuple(steps), composed=net.graph.composed)
    tell(sys.stderr, *shown.text(style).removesuffix("\n").split("\n"))
    return perf
