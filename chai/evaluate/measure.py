"""Base classes for every kind of output: a Measure makes a Record per image, a Side sums the Records of one side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log10, sqrt
from typing import Any

from ..blob import Array
from ..errors import UsageError
from ..images.pictures import Feed
from ..images.preprocess import PictureWindow
from ..net import Net
from ..text import number_of
from ..util.lazy_numpy import np
from ..util.table import floored
from .outputs import Output

Record = dict[str, Any]  # {"image": index, SIDE: plain values, ...}


@dataclass
class Side(ABC):
    """The sums of one side: number of images, number of images with ground truth, and the sums of averages.

    The others are compared with the first side: the network in float, or else the first device.
    """

    images: int = 0
    known: int = 0

    @abstractmethod
    def add(self, answer: Any, first: Any, truth: Any) -> None:
        """Add one image: this side's part of the Record, the first side's (None for itself), the ground truth."""

    @abstractmethod
    def compared(self) -> dict[str, Any]:
        """Return the figures of the comparison with the first side, for json.dumps."""

    @abstractmethod
    def judged(self) -> dict[str, Any]:
        """Return the figures of the comparison with the ground truth, for json.dumps; {} if there is none."""

    def to_json(self) -> dict[str, Any]:
        """Return all figures of a side other than the first."""
        return {**self.compared(), **self.judged()}


@dataclass
class LogitSums(Side):
    """The sums of one side whose logits are compared.

    ``kl``    sum over images of KL(first side || this one) in nats, for a map per pixel; None unless a Softmax computes them
    ``sqnr``  sum over images of the logits' SQNR in dB
    """

    kl: float | None = None
    sqnr: float = 0.0

    def add_logits(self, answer: Mapping[str, Any]) -> None:
        """Add ``of_logits`` of one image."""
        self.sqnr += answer["sqnr"]
        if answer["kl"] is not None:
            self.kl = (self.kl or 0.0) + answer["kl"]

    def compared_logits(self) -> dict[str, Any]:
        """Return the means over the images, for json.dumps."""
        return {"kl": None if self.kl is None else self.kl / self.images, "logits_sqnr_db": self.sqnr / self.images}


def of_logits(output: Output, exact: Array, other: Array, logits: Array, reached: Array) -> dict[str, float | None]:
    """Return the comparison of an image's probabilities and logits with those of the first side, ``exact`` and ``logits``."""
    divergent = divergence(exact, other) if output.decision == "softmax" else None
    return {"kl": divergent, "sqnr": decibels(logits, reached)}


def logit_rows(output: Output, reference: str, others: Sequence[LogitSums]) -> list[list[str]]:
    """Return the table's rows of the comparison with the side of name ``reference``."""
    nats = ("-" if s.kl is None else f"{s.kl / s.images:.4g}" for s in others)
    ratios = (f"{s.sqnr / s.images:.1f}" for s in others)
    return [[f"KL({reference} || it), nats", "", *nats], [f"{output.logits} SQNR, dB", "", *ratios]]


class Measure(ABC):
    """The figures for outputs of one kind. Workers call ``answers`` and ``record``, the main process the rest."""

    def __init__(self, output: Output) -> None:
        self.output = output

    @abstractmethod
    def answers(self, net: Net, feed: Mapping[str, Feed], windows: Sequence[PictureWindow]) -> list[Any]:
        """Run a batch and return the answer for each image. Raises UsageError for outputs of another form."""

    @abstractmethod
    def record(self, answers: Mapping[str, Any], window: PictureWindow, target: Array | None) -> Record:
        """Return the plain values of one image per side, the first side first. ``target``: the true classes of a map."""

    @abstractmethod
    def side(self) -> Side:
        """Return a Side without any image."""

    @abstractmethod
    def rows(self, sides: Mapping[str, Side]) -> list[list[str]]:
        """Return the table's rows: the name of a figure, and a cell per side."""


def forward(net: Net, output: Output, feed: Mapping[str, Feed]) -> tuple[Array, Array]:
    """Return an output and its logits for a batch. Raises UsageError unless it has one row per image."""
    value = net.forward(**feed)[output.blob]
    count = next(iter(feed.values())).shape[0]
    if len(value) != count:
        images = number_of(count, "image")
        message = f"evaluate: {output.blob!r} has {len(value)} rows for {images}, expected one for each"
        raise UsageError(message, hint=f"--output {output.blob}=boxes, if its rows are boxes")
    return value, value if output.logits in (None, output.blob) else net.blobs[str(output.logits)]


def divergence(p: Array, q: Array) -> float:
    """Return KL(p || q) of probabilities along the first axis, in nats, averaged over the other axes."""
    p, q = p.astype(np.float64), q.astype(np.float64)
    return float((p * (np.log(p + 1e-12) - np.log(q + 1e-12))).sum(0).mean())


def decibels(exact: Array, other: Array) -> float:
    """Return the signal-to-noise ratio of ``other`` in dB; 200 at most, and for equal arrays; -inf for infinite errors."""
    a, b = (x.astype(np.float64).ravel() for x in (exact, other))
    signal, error = float((a * a).sum()), float(((a - b) ** 2).sum())
    ratio = max(signal, 1e-300) / max(error, 1e-20 * signal, 1e-300)
    return 10 * log10(ratio) if ratio else -inf


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's score interval of hits / count; (0, 1) if count is 0."""
    if not count:
        return 0.0, 1.0
    p = hits / count
    middle, half = p + z * z / (2 * count), z * sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return max(0.0, (middle - half) / (1 + z * z / count)), min(1.0, (middle + half) / (1 + z * z / count))


def share(part: int, whole: int) -> float | None:
    """Return part / whole, 0 to 1; None if whole is 0."""
    return part / whole if whole else None


def counted(part: int, whole: int) -> str:
    """Return a fraction as text, rounded down: 3/4 (75.0 %)."""
    return f"{part}/{whole} ({floored(100 * part / whole)} %)" if whole else "-"


def interval(hits: int, count: int) -> str:
    """Return the 95 % confidence interval of hits / count as text."""
    low, high = wilson(hits, count)
    return f"{100 * low:.1f} to {100 * high:.1f} %"
