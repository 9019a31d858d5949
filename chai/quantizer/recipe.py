"""Recipes as data: which methods make a network's formats and weights, and in which order they are tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """``ranges``      how a blob's format follows from its values: a method of ranges.METHODS, or "behind" for the least
                    squared error of what its readers make of it
    ``weights``     thresholds of weights: "max" or "mse"
    ``equalise``    share of equalisation that is a blob's, 0 for none
    ``rounding``    "nearest", or weights are rounded together, on inputs that layers before have already quantised, by a
                    method of weights.TOGETHER
    ``bias``        "kept", or what it makes up for: a method of bias.SHARES
    """

    ranges: str = "mse"
    weights: str = "mse"
    equalise: float = 0.0
    rounding: str = "nearest"
    bias: str = "kept"

    @property
    def fits(self) -> bool:
        """Return whether weights or biases follow from what reaches the layers."""
        return self.rounding != "nearest" or self.bias != "kept"

    def __str__(self) -> str:
        words = [f"activations {self.ranges}", f"weights {self.weights}"]
        words += [f"equalised {self.equalise:g}"] * bool(self.equalise)
        words += [f"{self.rounding} rounding"] * (self.rounding != "nearest")
        words += [f"{self.bias} biases"] * (self.bias != "kept")
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


START = Stage(({"ranges": "behind", "weights": "mse"},))
RANGES = Stage(({"ranges": "kl"},))
MAXIMA = Stage(({"weights": "max"},))
TOGETHER = Stage(({"rounding": "compensated"},), trusted=True)
TUNED = Stage(({"bias": "tuned"},))
EQUALISED = Stage(({"equalise": 0.5},))
# Cheap stages come first, so that the dear ones start well. What tuned biases and equalised channels are worth depends on
# the network and the scheme, and shows only once weights are rounded together.
EFFORTS: dict[str, tuple[Stage, ...]] = {
    "fast": (START, RANGES, MAXIMA),
    "normal": (START, RANGES, MAXIMA, TOGETHER, TUNED, EQUALISED),
    "best": (
        START,
        Stage(tuple({"ranges": method} for method in ("kl", "mse", "percentile"))),
        MAXIMA,
        TOGETHER,
        Stage(({"bias": "tuned"}, {"bias": "mean"})),
        Stage(tuple({"equalise": share} for share in (0.3, 0.5, 0.7))),
        Stage(tuple({"ranges": method} for method in ("behind", "kl", "mse"))),
        Stage(({"weights": "max"}, {"weights": "mse"})),
        Stage(({"rounding": "learned"}, {"rounding": "nearest"})),
    ),
}


def changed(recipe: Recipe, stage: Stage) -> list[Recipe]:
    """Return the recipes of a stage, without those that change nothing."""
    made = (replace(recipe, **change) for change in stage.changes)
    return [r for r in dict.fromkeys(made) if r != recipe]
