"""Report the accuracy lost by quantisation, layer by layer against float, as sentences, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..evaluate.compare import Report, compare
from ..graph import Graph
from ..net import Net
from ..runtime.measuring import single
from ..tasks.coarser import SENTENCE, as_json, listed
from ..util.table import Table
from .search import Result
from .walk import Batch

DEAR = 5  # number of most expensive layers named


@dataclass(frozen=True)
class Verdict:
    """Errors of a quantised network: the ``check`` compares the written files with float, on the calibration images."""

    result: Result
    check: Report

    @property
    def methods(self) -> dict[str, str]:
        """Return the method by which each layer's output format was chosen."""
        graph, chosen = self.result.built.graph, self.result.built.chosen
        return {x.name: chosen[x.tops[0]] for x in graph.layers if x.tops and x.precision is not None}

    @property
    def dearest(self) -> list[tuple[str, float]]:
        """Return the layers with the highest cost if each ran alone on the overlay."""
        return sorted(self.result.costs.items(), key=lambda item: -item[1])[:DEAR]

    def to_json(self) -> dict[str, Any]:
        """Return a dict that json.dumps accepts."""
        r, built = self.result, self.result.built
        return {
            **self.check.to_json(),
            **r.how,
            "calibrated": r.images,
            "judged": self.check.images,
            "recipe": built.recipe.to_json(),
            "boxes": None if built.boxes is None else built.boxes._asdict(),
            "cost": r.cost,
            "cost_of_plain_maxima": r.plain,
            "tried": [{"recipe": recipe.to_json(), "cost": cost} for recipe, cost in r.tried],
            "methods": self.methods,
            "cost_alone": r.costs,
            "widened": r.widened,
            "on_host_because": built.refused,
            "coarser": as_json(built.coarser),
            "seconds": r.seconds,
            "seconds_float": r.observing,
            "prototxt": str(r.prototxt),
            "caffemodel": str(r.caffemodel),
        }

    def sentences(self) -> list[str]:
        """Return the results as sentences, most important first."""
        r, built = self.result, self.result.built
        sentences = [
            f"chosen: {built.recipe}",
            f"cost {r.cost:.4g} on {self.check.images} calibration images, {r.plain:.4g} with plain maxima",
        ]
        if r.how["bits"] == "mixed":
            names = ", ".join(r.widened) or "no layer"
            sentences.append(f"8 bits in {names} ({100 * sum(r.widened.values()):.1f} % of the multiply-accumulates)")
        sentences += [f"{a.blob}: {a.sentence()}" for a in self.check.agreements]
        if built.boxes is not None:
            sentences.append(built.boxes.sentence())
        if self.dearest:
            sentences.append("cost most: " + ", ".join(f"{name} ({cost:.2g})" for name, cost in self.dearest))
        if built.coarser:
            sentences.append(f"{SENTENCE}: {', '.join(listed(built.coarser))}")
        sentences += [f"{name} runs on the host: {reason}" for name, reason in built.refused.items()]
        return sentences

    def table(self) -> Table:
        """Return a table with a row per measured layer."""
        costs, methods = self.result.costs, self.methods
        rows = [
            [
                x.name,
                x.engine,
                "float32" if x.format is None else str(x.format),
                methods.get(x.name, ""),
                x.decibels,
                "-" if x.saturated is None else f"{x.saturated:.2f}",
                f"{costs[x.name]:.2g}" if x.name in costs else "",
            ]
            for x in self.check.measured
        ]
        return Table(["layer", "engine", "format", "chosen by", "SQNR", "sat %", "cost alone"], rows, "llllrrr")


def _images(graph: Graph, result: Result) -> Iterator[Batch]:
    """Yield the calibration images one by one, so that memory does not grow with their number."""
    for feeds in result.batches:
        yield from (one for _, one in single(graph, feeds))
        result.shelf.rest()


def verdict(result: Result, prototxt: str | Path, caffemodel: str | Path | None, **options: Any) -> Verdict:
    """Compare the files that ``quantize`` wrote with the float network; ``options`` are the Net options it was called with."""
    overlay = options.pop("overlay", None)
    with (
        Net(prototxt, caffemodel, "float", keep="all", **options) as reference,
        Net(result.prototxt, result.caffemodel, "emulator", overlay=overlay, **options) as fixed,
    ):
        images = _images(reference.graph, result)
        return Verdict(result, compare(reference, fixed, images, factors=result.built.factors))
