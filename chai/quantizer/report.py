"""What a quantised network lost: layer by layer against float, and as sentences, tables and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evaluate.compare import Report, compare
from ..net import Net
from ..util.table import Table, floored
from .search import Result

DEAR = 5  # layers named as those that cost most


@dataclass(frozen=True)
class Verdict:
    """``check``    float against the files that were written, on the calibration images
    ``methods``  how the format of each layer's output was chosen, by layer
    """

    result: Result
    check: Report
    methods: Mapping[str, str]

    @property
    def dearest(self) -> list[tuple[str, float]]:
        """The layers that would cost most if each alone ran on the overlay."""
        return sorted(self.result.costs.items(), key=lambda item: -item[1])[:DEAR]

    def to_json(self) -> dict[str, Any]:
        """Return numbers and names only, ready for json.dumps."""
        r, built = self.result, self.result.built
        return {
            **self.check.to_json(),
            **r.how,
            "calibrated": r.images,
            "judged": self.check.images,
            "recipe": built.recipe.to_json(),
            "cost": r.cost,
            "cost_of_plain_maxima": r.plain,
            "tried": [{"recipe": recipe.to_json(), "cost": cost} for recipe, cost in r.tried],
            "methods": dict(self.methods),
            "cost_alone": r.costs,
            "on_host_because": built.refused,
            "seconds": r.seconds,
            "seconds_float": r.observing,
            "prototxt": str(r.prototxt),
            "caffemodel": str(r.caffemodel),
        }

    def sentences(self) -> list[str]:
        """Return what there is to say, most important first."""
        r, built = self.result, self.result.built
        found = [
            f"chosen: {built.recipe}",
            f"cost {r.cost:.4g} on {self.check.images} calibration images, {r.plain:.4g} with plain maxima",
        ]
        for a in self.check.agreements:
            top5 = f", top-5 {a.top5}/{a.images}" if a.top5 is not None else ""
            found.append(f"{a.blob}: top-1 agreement {a.top1}/{a.images} ({floored(100 * a.share)} %){top5}")
        if self.dearest:
            found.append("cost most: " + ", ".join(f"{name} ({cost:.2g})" for name, cost in self.dearest))
        found += [f"{name} runs on the host: {reason}" for name, reason in built.refused.items()]
        return found

    def table(self) -> Table:
        """Return a row per layer that has numbers."""
        costs = self.result.costs
        rows = [
            [
                x.name,
                x.engine,
                "float32" if x.format is None else str(x.format),
                self.methods.get(x.name, ""),
                x.decibels,
                "-" if x.saturated is None else f"{x.saturated:.2f}",
                f"{costs[x.name]:.2g}" if x.name in costs else "",
            ]
            for x in self.check.measured
        ]
        return Table(["layer", "engine", "format", "chosen by", "SQNR", "sat %", "cost alone"], rows, "llllrrr")


def verdict(result: Result, prototxt: str | Path, caffemodel: str | Path | None, **options: Any) -> Verdict:
    """Run the files that ``quantize`` wrote against the float network. ``options`` are Net's, as given to it."""
    overlay = options.pop("overlay", None)
    with (
        Net(prototxt, caffemodel, "float", keep="all", **options) as reference,
        Net(result.prototxt, result.caffemodel, "emulator", overlay=overlay, **options) as fixed,
    ):
        found = compare(reference, fixed, result.batches, factors=result.built.factors)
    graph = result.built.graph
    methods = {x.name: result.built.chosen[x.tops[0]] for x in graph.layers if x.tops and x.precision is not None}
    return Verdict(result, found, methods)
