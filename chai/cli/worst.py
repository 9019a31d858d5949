"""Name the layers with the largest fixed-point error, and warn of layers below the bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import output

if TYPE_CHECKING:
    from ..evaluate.compare import LayerCheck, Report

NAMED = 5


def worst(report: Report) -> list[LayerCheck]:
    """Return the layers with the least SQNR, worst first."""
    return sorted(report.measured, key=lambda layer: layer.sqnr_db or 0.0)[:NAMED]


def sentence(report: Report) -> str:
    """Name the worst layers and their SQNR."""
    return "worst layers: " + ", ".join(f"{x.name} ({_decibels(x)})" for x in worst(report))


def below(report: Report) -> str | None:
    """Count the layers below the report's bound; None if there are none."""
    count = sum(layer.below(report.bound_db) for layer in report.layers)
    return f"{count} of {len(report.measured)} measured layers below {report.bound_db:g} dB" if count else None


def warn(report: Report) -> None:
    """Warn on stderr of layers below the bound."""
    poor = below(report)
    if poor is not None:
        output.say(f"warning: {poor}: the error is more than a tenth of the signal; chai check shows every layer")


def to_json(report: Report) -> dict[str, Any]:
    """Return the bound and the names of the layers below it, worst first."""
    poor = [layer for layer in report.layers if layer.below(report.bound_db)]
    return {
        "bound_db": report.bound_db,
        "below_bound": [layer.name for layer in sorted(poor, key=lambda layer: layer.sqnr_db or 0.0)],
    }


def _decibels(layer: LayerCheck) -> str:
    return layer.decibels if layer.decibels == "exact" else f"{layer.decibels} dB"
