"""Name the layers with the largest fixed-point error, warn of layers below the bound, and write pages of comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..evaluate.compare import FULL_DB, Report
from ..fixed import Coarser
from ..report import page as reports
from ..report.page import Bar, Chart
from . import output
from .inputs import Failure

NAMED = 5


class CheckedLayer(TypedDict):
    """Error of a layer in fixed point against float; without any error ``exact`` is true and ``sqnr_db`` null."""

    name: str
    type: str
    engine: str
    inside: str | None
    format: str | None
    sqnr_db: float | None
    exact: bool
    max_error: float | None
    saturated_percent: float | None
    seen: float | None
    channel: int | None
    not_finite: int


class TopAgreement(TypedDict):
    """Number of images with the same top class of an output in float and in fixed point."""

    blob: str
    images: int
    top1: int
    top5: int | None
    share: float


@dataclass(frozen=True)
class Compared(output.Schema):
    """Comparison of float and fixed point, layer by layer."""

    network: str
    overlay: str
    formats: str
    calibrated: int
    images: int
    bound_db: float
    first_bad: str | None
    agreement: list[TopAgreement]
    coarser: dict[str, Coarser]
    layers: list[CheckedLayer]
    preprocess: str
    failed: list[Failure]


def chart(report: Report) -> Chart:
    """Return a bar for each measured layer."""
    bound = report.bound_db
    bars = [Bar(x.name, x.sqnr_db or 0.0, x.decibels, x.engine, x.below(bound)) for x in report.measured]
    return Chart("SQNR of each layer, dB", bars, FULL_DB, bound)


def save_page(path: Path, title: str, facts: Mapping[str, str], body: Sequence[str], content: Compared) -> None:
    """Write the page of a comparison, with its numbers as in ``--json``."""
    reports.save(path, reports.document(title, facts, body, output.plain_values(content)))
    output.say(f"wrote {path}")


def sentence(report: Report) -> str:
    """Name the worst layers and their SQNR."""
    worst = sorted(report.measured, key=lambda layer: layer.sqnr_db or 0.0)[:NAMED]
    return "worst layers: " + ", ".join(f"{x.name} ({x.decibels}{' dB' * (x.decibels != 'exact')})" for x in worst)


def below(report: Report) -> list[str]:
    """Return a sentence with the number of layers below the report's bound; [] if there are none."""
    count = len(names(report))
    return [f"{count} of {len(report.measured)} measured layers below {report.bound_db:g} dB"] if count else []


def warn(report: Report) -> None:
    """Warn on stderr of layers below the bound."""
    for poor in below(report):
        output.say(f"warning: {poor}: the error is more than a tenth of the signal; chai check shows every layer")


def names(report: Report) -> list[str]:
    """Return the names of the layers below the report's bound, worst first."""
    poor = [layer for layer in report.layers if layer.below(report.bound_db)]
    return [layer.name for layer in sorted(poor, key=lambda layer: layer.sqnr_db or 0.0)]
