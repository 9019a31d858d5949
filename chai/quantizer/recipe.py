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
# Each stage changes the best recipe so far in every way it lists; what has the least cost on the calibration images goes
# on. Cheap stages come first, so that the dear ones start well.
RANGES = [{"ranges": "mse"}, {"ranges": "kl"}, {"ranges": "percentile"}]
EQUALISE = [{"equalise": 0.5}, {"equalise": 0.7}]
TOGETHER = [{"compensate": True}, {"compensate": True, "tune_bias": True}]
EFFORTS: dict[str, list[list[dict[str, Any]]]] = {
    "fast": [[{"ranges": "mse", "weights": "mse"}], RANGES],
    "normal": [[{"ranges": "mse", "weights": "mse"}], RANGES, [{"weights": "max"}], EQUALISE, TOGETHER],
    "best": [
        [{"ranges": "mse", "weights": "mse"}],
        RANGES,
        [{"weights": "max"}],
        [*EQUALISE, {"equalise": 0.3}, {"equalise": 1.0}],
        TOGETHER,
        [{"ranges": "mse"}, {"ranges": "kl"}, {"ranges": "percentile"}, {"weights": "max"}, {"equalise": 0.0}],
    ],
}


def changed(recipe: Recipe, stage: list[dict[str, Any]]) -> list[Recipe]:
    """The recipes of a stage, without those that change nothing."""
    made = (replace(recipe, **change) for change in stage)
    return [r for r in dict.fromkeys(made) if r != recipe]
