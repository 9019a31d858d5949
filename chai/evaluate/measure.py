"""What outputs of every kind have in common: a Measure makes a Record of each image, a Side adds up one side's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10, sqrt
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..net import Net
from ..util.lazy_numpy import np
from .outputs import Output

if TYPE_CHECKING:
    from ..blob import Array

Record = dict[str, Any]  # {"image": index, SIDE: plain values, ...}
Window = tuple[float, float, float, float]  # left, top, right, bottom of the network's input in pixels of the image
UNIT: Window = (0.0, 0.0, 1.0, 1.0)


@dataclass
class Side(ABC):
    """The sums of one side: counts over images, those with a known answer, and what is averaged.

    The first side is what the others are compared with: the network in float, or the first device without one.
    """

    output: Output
    images: int = 0
    known: int = 0

    @abstractmethod
    def add(self, own: Any, first: Any, truth: Any) -> None:
        """Add one image: this side's part of the Record, the first side's (None on the first side itself), the truth."""

    @abstractmethod
    def compared(self) -> dict[str, Any]:
        """Return what the comparison with the first side gives, ready for json.dumps."""

    @abstractmethod
    def judged(self) -> dict[str, Any]:
        """Return what the known answers give, ready for json.dumps; nothing where none is known."""

    def to_json(self) -> dict[str, Any]:
        """Return all figures of a side that was compared."""
        return {**self.compared(), **self.judged()}


class Measure(ABC):
    """What is done with outputs of one kind: ``answers`` and ``record`` by a worker, the rest where all is added up."""

    def __init__(self, output: Output) -> None:
        self.output = output

    @abstractmethod
    def answers(self, net: Net, feed: Mapping[str, Array], windows: Sequence[Window]) -> list[Any]:
        """Run a batch and return what it says of each image. Raises UsageError for outputs of another form."""

    @abstractmethod
    def record(self, answers: Mapping[str, Any], window: Window, target: Array | None) -> Record:
        """Return the plain values of one image per side, the first side first. ``target``: its true classes, of a map."""

    @abstractmethod
    def side(self) -> Side:
        """Return a Side without any image."""

    @abstractmethod
    def rows(self, sides: Mapping[str, Side]) -> list[list[str]]:
        """Return the table's rows: what is measured, and a cell per side."""


def forward(net: Net, output: Output, feed: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return an output and its logits for a batch, a row per image. Raises UsageError if there are other rows."""
    value = net.forward(**feed)[output.blob]
    count = len(next(iter(feed.values())))
    if len(value) != count:
        raise UsageError(
            f"evaluate: {output.blob!r} has {len(value)} rows for {count} images, expected one for each",
            hint=f"--output {output.blob}=boxes, if its rows are boxes",
        )
    return value, value if output.logits in (None, output.blob) else net.blobs[str(output.logits)]


def divergence(p: Array, q: Array, axis: int = 0) -> float:
    """Return KL(p || q) of probabilities along an axis, in nats, averaged over what is left."""
    p, q = p.astype(np.float64), q.astype(np.float64)
    return float((p * (np.log(p + 1e-12) - np.log(q + 1e-12))).sum(axis).mean())


def decibels(exact: Array, other: Array) -> float:
    """Return the signal-to-noise ratio of ``other`` in dB, at most 200: equal arrays have no noise."""
    a, b = (x.astype(np.float64).ravel() for x in (exact, other))
    signal, error = float((a * a).sum()), float(((a - b) ** 2).sum())
    return 10 * log10(max(signal, 1e-300) / max(error, 1e-20 * signal, 1e-300))


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's score interval of a share; (0, 1) of nothing."""
    if not count:
        return 0.0, 1.0
    p = hits / count
    middle, half = p + z * z / (2 * count), z * sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return max(0.0, (middle - half) / (1 + z * z / count)), min(1.0, (middle + half) / (1 + z * z / count))


def share(part: int, whole: int) -> float | None:
    """Return a share of 0 to 1; None of nothing."""
    return part / whole if whole else None


def counted(part: int, whole: int) -> str:
    """Return a share as text: 3/4 (75.0 %)."""
    return f"{part}/{whole} ({100 * part / whole:.1f} %)" if whole else "-"


def interval(hits: int, count: int) -> str:
    """Return a share's 95 % confidence interval as text."""
    low, high = wilson(hits, count)
    return f"{100 * low:.1f} to {100 * high:.1f} %"
