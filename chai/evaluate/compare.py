"""Compare the overlay's fixed point with float32, layer by layer (``chai check``).

The network is measured as the overlay runs it, after all passes. A layer that a pass merged into another one has no
numbers of its own: its row names that layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isfinite, log10
from pathlib import Path
from typing import Any, NamedTuple

from ..blob import Array, images_of
from ..errors import UsageError
from ..fixed import Coarser, Format
from ..graph import Graph, Layer
from ..net import Net
from ..offload.formats import has_formats
from ..passes.infer_shapes import unlike_caffe
from ..runtime.batches import ahead, run_batches
from ..runtime.execution import Execution
from ..tasks.coarser import as_json
from ..text import number_of, visible
from ..util import html
from ..util.lazy_numpy import np
from ..util.log import logger
from ..util.table import Table, floored
from .measure import counted
from .outputs import kind_of, source
from .score import TOP

log = logger("chai.check")
BOUND_DB = 10.0  # below it the error has more than a tenth of the signal's energy
FULL_DB = 40.0  # SQNR of a whole bar


@dataclass(frozen=True)
class LayerCheck:
    """One layer of the prototxt, or one input blob (type "Input").

    ``engine``      fpga, host, custom, or input
    ``inside``      the layer that this one was merged into; then the fields below are unknown
    ``format``      format of its blob on the overlay, None if the blob is never there
    ``sqnr_db``     10 log10(signal energy / error energy) of all its tops; inf without any error, None if the
                    tops cannot be compared element by element (boxes)
    ``max_error``   largest difference, in the blob's unit
    ``saturated``   percent of saturated values: out of the format's range in float, its last code in fixed point
    ``seen``        largest magnitude in float, in ``channel`` (axis 1; None for blobs without one)
    ``range_max``   largest value of the format
    ``not_finite``  values that are NaN or infinite in float or fixed point and differ
    """

    name: str
    type: str
    engine: str
    inside: str | None = None
    format: Format | None = None
    sqnr_db: float | None = None
    max_error: float | None = None
    saturated: float | None = None
    seen: float | None = None
    channel: int | None = None
    range_max: float | None = None
    not_finite: int = 0

    @property
    def decibels(self) -> str:
        """SQNR as text."""
        if self.sqnr_db is None:
            return "-"
        return "exact" if self.sqnr_db == inf else floored(self.sqnr_db)

    def below(self, bound_db: float) -> bool:
        """Return whether the layer was measured and has an SQNR below ``bound_db``."""
        return self.not_finite > 0 or (self.sqnr_db is not None and self.sqnr_db < bound_db)

    def to_json(self) -> dict[str, Any]:
        """Return values for json.dumps. Without any error ``exact`` is true and ``sqnr_db`` null: JSON has no infinity."""
        return {
            "name": self.name,
            "type": self.type,
            "engine": self.engine,
            "inside": self.inside,
            "format": None if self.format is None else str(self.format),
            "sqnr_db": _number(self.sqnr_db),
            "exact": self.sqnr_db == inf,
            "max_error": _number(self.max_error),
            "saturated_percent": _number(self.saturated),
            "seen": _number(self.seen),
            "channel": self.channel,
            "not_finite": self.not_finite,
        }


@dataclass
class Agreement:
    """Agreement of float and fixed point on an output of class scores: probabilities, else any flat output.

    ``top1``  images whose best class is the same
    ``top5``  images whose best class in float is among the five best in fixed point; None for five classes or fewer
    """

    blob: str
    images: int = 0
    top1: int = 0
    top5: int | None = None

    def add(self, expected: Array, actual: Array) -> None:
        """Add class scores (N, classes) in float and in fixed point."""
        best = expected.argmax(1)
        order = np.argsort(-actual, 1, kind="stable")[:, :TOP]
        self.images += len(best)
        self.top1 += int((order[:, 0] == best).sum())
        if expected.shape[1] > TOP:
            self.top5 = (self.top5 or 0) + int((order == best[:, None]).any(1).sum())

    @property
    def share(self) -> float:
        """Top-1 agreement, 0 to 1."""
        return self.top1 / self.images

    def sentence(self, gap: str = ", ") -> str:
        """Return both agreements as text, ``gap`` between them."""
        top5 = f"{gap}top-5 {self.top5}/{self.images}" if self.top5 is not None else ""
        return f"top-1 agreement {counted(self.top1, self.images)}{top5}"

    def to_json(self) -> dict[str, Any]:
        """Return numbers and names only, ready for json.dumps."""
        return {"blob": self.blob, "images": self.images, "top1": self.top1, "top5": self.top5, "share": self.share}


@dataclass(frozen=True)
class Report:
    """The result of ``check``. ``layers`` has the inputs first, then every layer in the order of the prototxt.

    ``formats`` describes the formats in words. ``calibrated`` is the number of these images that they were calibrated on
    (0: other images, or no calibration), ``margin`` the factor of their largest values. ``brought``: they are the network's own.
    ``coarser`` has the layers whose weights got coarser steps to fit the accumulator.
    """

    network: str
    overlay: str
    formats: str
    calibrated: int
    images: int
    bound_db: float
    layers: tuple[LayerCheck, ...]
    agreements: tuple[Agreement, ...] = ()
    coarser: Mapping[str, Coarser] = field(default_factory=dict)
    margin: float = 1.0
    brought: bool = False

    @property
    def measured(self) -> tuple[LayerCheck, ...]:
        """The layers that have numbers."""
        return tuple(layer for layer in self.layers if layer.sqnr_db is not None)

    @property
    def first_bad(self) -> LayerCheck | None:
        """The first layer below the bound."""
        return next((layer for layer in self.layers if layer.below(self.bound_db)), None)

    @property
    def agreement(self) -> float | None:
        """The lowest top-1 agreement of all class-score outputs, 0 to 1; None if there is no such output."""
        return min((a.share for a in self.agreements), default=None)

    def __repr__(self) -> str:
        measured = f"{number_of(len(self.measured), 'layer')} measured on {number_of(self.images, 'image')}"
        return visible(f"<Report: {self.network} on {self.overlay}, {measured}>")

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: each layer's SQNR as a bar, and the agreement."""
        layers = self.measured
        rows = [
            (x.name, x.engine, str(x.format or "float32"), x.decibels, "below the bound" * x.below(self.bound_db))
            for x in layers
        ]
        bars = [(x.engine, 100 * (x.sqnr_db or 0.0) / FULL_DB) for x in layers]
        facts = [f"{self.network} on {self.overlay}, {number_of(self.images, 'image')}, formats: {self.formats}"]
        facts += [f"{a.blob}: {a.sentence()}" for a in self.agreements]
        table = Table(("layer", "engine", "format", "SQNR dB", f"{self.bound_db:g} dB"), rows, "lllrl")
        return html.notebook(*map(html.paragraph, facts), html.rows(table, bars))

    def to_json(self) -> dict[str, Any]:
        """Return numbers and names only, ready for json.dumps."""
        bad = self.first_bad
        return {
            "network": self.network,
            "overlay": self.overlay,
            "formats": self.formats,
            "calibrated": self.calibrated,
            "images": self.images,
            "bound_db": self.bound_db,
            "first_bad": None if bad is None else bad.name,
            "agreement": [a.to_json() for a in self.agreements],
            "coarser": as_json(self.coarser),
            "layers": [layer.to_json() for layer in self.layers],
        }


def check(
    prototxt: str | Path,
    caffemodel: str | Path | None,
    inputs: Iterable[Any],
    *,
    overlay: str | Path | None = None,
    bits: int = 8,
    scheme: str | None = None,
    engine: Mapping[str, str] | None = None,
    bound_db: float = BOUND_DB,
    **options: Any,
) -> Report:
    """Run a network in float32 and on the emulator, and compare every blob on the overlay.

    ``inputs``     batches as ``Net.forward`` takes them: float32 (N, C, H, W), or {blob: array}; one is in memory at a time
    ``overlay``, ``bits``, ``scheme``, ``engine``   of the fixed-point network, as for Net; formats come from the
                   first images unless the network has precision_param
    ``bound_db``   smallest SQNR that a layer should have, in dB
    ``options``    arguments for both networks: custom, batch, phase, level, stages, shapes

    Raises the errors of Net, and UsageError without any input.
    """
    with (
        Net(prototxt, caffemodel, "float", keep="all", **options) as reference,
        Net(
            prototxt, caffemodel, "emulator", overlay=overlay, bits=bits, scheme=scheme, engine=engine, **options
        ) as fixed,
    ):
        return compare(reference, fixed, inputs, bound_db)


def compare(
    reference: Net,
    fixed: Net,
    inputs: Iterable[Any],
    bound_db: float = BOUND_DB,
    factors: Mapping[str, Array] | None = None,
) -> Report:
    """Compare two Nets of one network, as ``check`` does.

    ``reference`` is in float with ``keep="all"``; ``fixed`` runs a prototxt or a .chai file on the emulator, and is
    calibrated on the first batches unless it has formats. ``factors`` has, by blob id, the divisors (C,) of channels that
    quantisation scaled: the rows of these blobs are in the unit of ``fixed``.
    """
    comparison = _Comparison(reference, fixed, factors or {})
    batches = (batch if isinstance(batch, Mapping) else {fixed.inputs[0]: batch} for batch in inputs)
    for batch in ahead(fixed, batches, comparison.feeds):
        comparison.add(batch)
    if not comparison.images:
        raise UsageError("check: there is no input")
    return comparison.report(bound_db)


@dataclass
class _Sums:
    """Running sums of a layer over all batches."""

    signal: float = 0.0
    error: float = 0.0
    max_error: float = 0.0
    seen: float = 0.0
    channel: int | None = None
    saturated: int = 0
    values: int = 0
    not_finite: int = 0

    def add(self, expected: Array, actual: Array, ends: tuple[float, float] | None) -> None:
        """Add a blob in float and in fixed point; ``ends`` are the smallest and largest values of its format, if any."""
        a, b = expected.astype(np.float64), actual.astype(np.float64)
        self.values += a.size
        finite = np.isfinite(a) & np.isfinite(b)
        if not finite.all():
            self.not_finite += int((~finite & (a != b)).sum())
            a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        if not a.size:
            return
        if ends is not None:
            low, high = ends
            self.saturated += int((((a > high) & (b >= high)) | ((a < low) & (b <= low))).sum())
        largest = int(np.abs(a).argmax())
        if abs(a.flat[largest]) > self.seen:
            self.seen = float(abs(a.flat[largest]))
            self.channel = int(np.unravel_index(largest, a.shape)[1]) if a.ndim > 1 else None
        self.signal += float(np.vdot(a, a))
        b -= a
        self.error += float(np.vdot(b, b))
        self.max_error = max(self.max_error, float(np.abs(b).max()))

    @property
    def sqnr_db(self) -> float:
        if self.error == 0:
            return inf
        return 10 * log10(self.signal / self.error) if self.signal else -inf


class _OverlayBlob(NamedTuple):
    """A blob on the overlay. ``packed``: the host writes it and Pack converts it to codes."""

    format: Format
    packed: bool

    @property
    def ends(self) -> tuple[float, float]:
        """Return the values of its first and last code."""
        codes = self.format.packed if self.packed else self.format.range
        low, high = self.format.dequantize(np.array(codes))
        return float(low), float(high)


def _held(offload: Execution) -> dict[str, _OverlayBlob]:
    """Return all blobs that are on the overlay at any time, by id."""
    packed = {blob: _OverlayBlob(format, True) for blob, format in offload.schedule.from_host.items()}
    tops = (top for step in offload.schedule.segments for layer in step.layers for top in layer.tops)
    return packed | {top: _OverlayBlob(offload.formats[top], False) for top in tops}


class _Comparison:
    def __init__(self, reference: Net, fixed: Net, factors: Mapping[str, Array]) -> None:
        self.reference = reference
        self.factors = factors
        self.fixed = fixed
        self.images, self.measuring = 0, not fixed.calibrated
        self.sums: dict[tuple[str, str], _Sums] = {}  # by ("input", blob) or ("layer", name in the rewritten graph)
        self.agreements: dict[str, Agreement] = {}

    def feeds(self, batch: Mapping[str, Any]) -> dict[str, Array]:
        """Return the inputs of the fixed-point network in a batch."""
        return {name: np.asarray(batch[name], np.float32, order="C") for name in self.fixed.inputs}

    def add(self, batch: Mapping[str, Any]) -> None:
        if not self.fixed.calibrated:
            self.fixed.calibrate(**batch)
        outputs = self.reference.forward(**batch)
        feeds = self.feeds(batch)
        size = images_of(feeds)
        self.fixed.reshape(**{name: feed.shape for name, feed in feeds.items()})
        self.images += size
        offload = self.fixed.offload
        held = _held(offload)
        # kept by id, not by keep="all": that would prevent passes and so measure another network
        tops = {t for layer in offload.graph.layers for t in layer.tops}
        actual, _ = run_batches(offload, feeds, tops)
        for blob, feed in feeds.items():
            self._add(("input", blob), feed, feed, held.get(blob))
        for layer in offload.graph.layers:
            if not layer.source and not layer.dynamic:
                for blob, expected in zip(layer.tops, self.reference.tops(layer.origin[-1])):
                    if blob in self.factors:
                        expected = expected / self.factors[blob].astype(np.float32).reshape(-1, 1, 1)
                    self._add(("layer", layer.name), expected, actual[blob], held.get(blob))
        if not self.images - size:
            for text in unlike_caffe(self.fixed.graph, self.fixed.shapes):
                log.warning("%s; blobs of other sizes are not compared", text)
        latest = offload.graph.latest
        for name, expected in outputs.items():
            self._agree(name, size, expected, actual[latest[name]])

    def _add(self, key: tuple[str, str], expected: Array, actual: Array, held: _OverlayBlob | None) -> None:
        if expected.shape != actual.shape:
            return
        if held is not None and held.packed:  # the host has it in float: compare the codes that the overlay gets
            with np.errstate(all="ignore"):
                actual = held.format.dequantize(held.format.quantize(actual))
        self.sums.setdefault(key, _Sums()).add(expected, actual, None if held is None else held.ends)

    def _agree(self, name: str, size: int, expected: Array, actual: Array) -> None:
        scores = kind_of(self.fixed, name) == "scores" and source(self.fixed.graph, name).decision != "argmax"
        if scores and len(expected) == size and expected.shape == actual.shape:
            agreement = self.agreements.setdefault(name, Agreement(name))
            agreement.add(expected.reshape(size, -1), actual.reshape(size, -1))

    def report(self, bound_db: float) -> Report:
        net, offload = self.fixed, self.fixed.offload
        assert net.overlay is not None
        held = _held(offload)
        rows = [self._row(("input", blob), "Input", "input", held.get(blob)) for blob in net.inputs]
        rows += self._layers(offload, held)
        agreements = self.agreements.values()
        sure = [a for a in agreements if source(net.graph, a.blob).decision == "softmax"]
        # all formats that calibration chooses have the same bits and scheme
        chosen = dict.fromkeys(f"{f.bits}-bit {f.scheme}" for f in offload.formats.values())
        brought = has_formats(offload.graph)
        return Report(
            net.name,
            net.overlay.name,
            offload.graph.formats_in if brought else ", ".join(chosen),
            net.basis.images if net.basis is not None and self.measuring else 0,
            self.images,
            bound_db,
            tuple(rows),
            tuple(sure or agreements),  # if there are probabilities, other flat outputs are coordinates
            offload.plan.coarser,
            1.0 if net.basis is None else net.basis.margin,
            brought,
        )

    def _layers(self, offload: Execution, held: Mapping[str, _OverlayBlob]) -> Iterator[LayerCheck]:
        """Yield every layer of the prototxt except the sources, which are listed by their blobs."""
        graph = self.reference.graph
        computing = _computing(graph, offload.graph)
        for layer in graph.layers:
            if layer.source:
                continue
            now = computing[layer.name]
            if isinstance(now, str):
                yield LayerCheck(layer.name, layer.type, "input", inside=now)
                continue
            engine = "fpga" if offload.partition.engine(now.name) == "fpga" else now.engine
            if now.name != layer.name:
                yield LayerCheck(layer.name, layer.type, engine, inside=now.name)
            else:
                first = held.get(now.tops[0]) if now.tops else None
                yield self._row(("layer", now.name), layer.type, engine, first)

    def _row(self, key: tuple[str, str], type: str, engine: str, held: _OverlayBlob | None) -> LayerCheck:
        row, sums = LayerCheck(key[1], type, engine), self.sums.get(key)
        if sums is None:
            return row
        if held is not None:
            share = 100 * sums.saturated / max(1, sums.values)
            row = replace(row, format=held.format, saturated=share, range_max=held.ends[1])
        row = replace(row, seen=sums.seen, channel=sums.channel, not_finite=sums.not_finite)
        return replace(row, sqnr_db=sums.sqnr_db, max_error=sums.max_error)


def _computing(graph: Graph, rewritten: Graph) -> dict[str, Layer | str]:
    """Return, for each layer of the prototxt, the layer that now computes it; an input blob's name if none does.

    A layer that a pass removed (Dropout, Split) only relayed a blob: its entry is the layer that writes this blob.
    """
    computing: dict[str, Layer | str] = {**rewritten.by_origin}
    for layer in graph.layers:
        if layer.name not in computing:
            source = graph.writers[layer.bottoms[0]]
            computing[layer.name] = layer.bottoms[0] if source.source else computing[source.name]
    return computing


def _number(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
