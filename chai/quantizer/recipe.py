"""Recipes as data: the methods that choose formats and weights, and the order in which they are tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..errors import UsageError
from ..util.data.dataclass_io import problem
from .ranges import METHODS
from .weights import CORRECTIONS, TOGETHER as JOINTLY

AFTER = "after"


@dataclass(frozen=True)
class Recipe:
    """A choice of calibration methods. Raises UsageError for one that is not there.

    ``ranges``      method for blob formats: one of ranges.METHODS, or AFTER for the least squared error in the
                    outputs of the layers that read the blob
    ``weights``     method for thresholds of weights: "max" or "mse"
    ``equalise``    blob's share of the equalisation, see equalise.factors; 0 for none
    ``rounding``    "nearest", or a method of weights.TOGETHER that rounds a layer's weights jointly, on inputs quantised by
                    the layers before it
    ``bias``        "kept", or a correction method of weights.CORRECTIONS
    """

    ranges: str = field(default="mse", metadata={"choice": (*METHODS, AFTER)})
    weights: str = field(default="mse", metadata={"choice": ("max", "mse")})
    equalise: float = 0.0
    rounding: str = field(default="nearest", metadata={"choice": ("nearest", *JOINTLY)})
    bias: str = field(default="kept", metadata={"choice": ("kept", *CORRECTIONS)})

    def __post_init__(self) -> None:
        for each in fields(self):
            refusal = problem(each.metadata, getattr(self, each.name))
            if refusal:
                raise UsageError(f"recipe: {each.name} {refusal}")

    @property
    def fits(self) -> bool:
        """Return whether weights or biases are fitted to the layers' inputs."""
        return self.rounding != "nearest" or self.bias != "kept"

    def __str__(self) -> str:
        words = [f"activations {self.ranges}", f"weights {self.weights}"]
        if self.equalise:
            words.append(f"equalised {self.equalise:g}")
        if self.rounding != "nearest":
            words.append(f"{self.rounding} rounding")
        if self.bias != "kept":
            words.append(f"{self.bias} biases")
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return a dict that json.dumps accepts."""
        return asdict(self)


PLAIN = Recipe("max", "max")


@dataclass(frozen=True)
class SearchStage:
    """Changes to the best recipe so far, each tried separately.

    ``evidence``  standard errors by which a change must cost less on the calibration images to be kept: of many that are
                  tried, one would look better by luck. Negative, so that it may even cost more, for one that reduces
                  errors measured on thousands of values
    """

    changes: tuple[dict[str, Any], ...]
    evidence: float = 1.0


START = SearchStage(({"ranges": AFTER, "weights": "mse"},), evidence=-1.0)
MAXIMA = SearchStage(({"weights": "max"},))
FAST = START, SearchStage(({"ranges": "kl"},)), MAXIMA
TOGETHER = SearchStage(({"rounding": "compensated"},), evidence=-1.0)
# Cheap stages come first, so that the expensive ones start from a good recipe. The benefit of tuned biases and equalised
# channels depends on network and scheme, and can be judged only after the weights are rounded jointly.
EFFORTS: dict[str, tuple[SearchStage, ...]] = {
    "fast": FAST,
    "normal": (*FAST, TOGETHER, SearchStage(({"bias": "tuned"},)), SearchStage(({"equalise": 0.5},))),
    "best": (
        START,
        SearchStage(tuple({"ranges": method} for method in ("kl", "mse", "percentile"))),
        MAXIMA,
        TOGETHER,
        SearchStage(({"bias": "tuned"}, {"bias": "mean"})),
        SearchStage(tuple({"equalise": share} for share in (0.3, 0.5, 0.7))),
        SearchStage(tuple({"ranges": method} for method in (AFTER, "kl", "mse"))),
        SearchStage(({"weights": "max"}, {"weights": "mse"})),
        SearchStage(({"rounding": "learned"}, {"rounding": "nearest"})),
    ),
}


def of_formats(stages: tuple[SearchStage, ...]) -> tuple[SearchStage, ...]:
    """Return the stages that change no weights, for a network whose weights are kept."""
    return tuple(stage for stage in stages if all(change.keys() <= {"ranges", "weights"} for change in stage.changes))


def changed(recipe: Recipe, stage: SearchStage) -> list[Recipe]:
    """Return the distinct recipes of a stage that differ from ``recipe``."""
    recipes = (replace(recipe, **change) for change in stage.changes)
    return [r for r in dict.fromkeys(recipes) if r != recipe]
