"""Recipes as data: which methods make a network's formats and weights, and in which order they are tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """``ranges``      how a blob's format follows from its values: a method of ranges.METHODS
    ``weights``     thresholds of weights: "max" or "mse"
    ``equalise``    share of equalisation that is a blob's, 0 for none
    ``compensate``  weights are rounded together, on inputs that layers before have already quantised
    ``tune_bias``   biases make up for mean errors, judged behind the ReLU
    """

    ranges: str = "mse"
    weights: str = "mse"
    equalise: float = 0.0
    compensate: bool = False
    tune_bias: bool = False

    def __str__(self) -> str:
        words = [f"activations {self.ranges}", f"weights {self.weights}"]
        words += [f"equalised {self.equalise:g}"] * bool(self.equalise)
        words += ["compensated rounding"] * self.compensate + ["tuned biases"] * self.tune_bias
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Ready for json.dumps."""
        return asdict(self)


PLAIN = Recipe("max", "max")


@dataclass(frozen=True)
class Stage:
    """Changes to the best recipe so far, each tried by itself and taken if it is clearly better.

    ``trusted``  such a change is taken unless it is clearly worse on the calibration images: it repairs errors that can be
                 measured on thousands of values, of which the outputs of a few images are a noisy witness
    """

    changes: tuple[dict[str, Any], ...]
    trusted: bool = False


START = Stage(({"ranges": "mse", "weights": "mse"},))
RANGES = Stage(({"ranges": "mse"}, {"ranges": "kl"}))
PERCENTILE = Stage(({"ranges": "percentile"},))
MAXIMA = Stage(({"weights": "max"},))
TOGETHER = Stage(({"compensate": True, "tune_bias": True},), trusted=True)
# Cheap stages come first, so that the dear ones start well; what looked best before weights were rounded together need
# not be best after it, so that some is tried again.
EFFORTS: dict[str, tuple[Stage, ...]] = {
    "fast": (START, RANGES, PERCENTILE, MAXIMA),
    "normal": (
        START,
        RANGES,
        PERCENTILE,
        MAXIMA,
        Stage(({"equalise": 0.5}, {"equalise": 0.7})),
        TOGETHER,
        RANGES,
        Stage(({"equalise": 0.5},)),
    ),
    "best": (
        START,
        RANGES,
        PERCENTILE,
        MAXIMA,
        Stage(tuple({"equalise": share} for share in (0.3, 0.5, 0.7, 1.0))),
        TOGETHER,
        RANGES,
        Stage(({"weights": "max"}, {"weights": "mse"})),
        Stage(tuple({"equalise": share} for share in (0.0, 0.3, 0.5, 0.7))),
        Stage(({"tune_bias": False}, {"compensate": False})),
    ),
}


def changed(recipe: Recipe, stage: Stage) -> list[Recipe]:
    """The recipes of a stage, without those that change nothing."""
    made = (replace(recipe, **change) for change in stage.changes)
    return [r for r in dict.fromkeys(made) if r != recipe]
