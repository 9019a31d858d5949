"""What one image says about each side, and what many say together. The first side is what the others are compared with:
the network in float, or the first device where there is no float."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log10, sqrt
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..graph import Graph
from ..layers.softmax import Softmax
from ..net import Net
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from ..blob import Array

TOP = 5
Record = dict[str, Any]  # {"image": index, FIRST: best classes, OTHER: {"best": classes, "kl": nats, "sqnr": dB}, ...}


@dataclass
class Evaluation:
    """One side: counts over images, sums of what is averaged. ``blob`` are the class scores, ``logits`` what they are made
    from.

    ``agree``       images whose best class is the first side's
    ``kl``          sum over images of KL(first side || this one), nats; 0 where the scores are no probabilities
    ``sqnr``        sum over images of the logits' SQNR in dB
    ``hits``        correct answers, [top-1, top-5], of the ``known`` images

    Of the first side itself nothing is compared: the first three stay 0.
    """

    blob: str
    logits: str
    images: int = 0
    agree: int = 0
    kl: float = 0.0
    sqnr: float = 0.0
    known: int = 0
    hits: list[int] = field(default_factory=lambda: [0, 0])

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the share of images that agree (Wilson's)."""
        return wilson(self.agree, self.images)

    def add(self, found: Sequence[int], truth: int | None) -> None:
        """One image: this side's best classes, and the true one if it is known."""
        self.images += 1
        if truth is not None:
            self.known += 1
            self.hits[0] += found[0] == truth
            self.hits[1] += truth in found

    def add_compared(self, exact: Sequence[int], seen: Mapping[str, Any], truth: int | None) -> None:
        """One image: the first side's best classes, what ``compare`` found, and the true class if it is known."""
        self.add(seen["best"], truth)
        self.agree += exact[0] == seen["best"][0]
        self.kl += seen["kl"]
        self.sqnr += seen["sqnr"]

    def to_json(self) -> dict[str, Any]:
        """Numbers only, ready for json.dumps: of a side that was compared."""
        found: dict[str, Any] = {
            "agree": self.agree,
            "agreement": self.agree / self.images,
            "agreement_95": list(self.interval),
            "kl": self.kl / self.images,
            "logits_sqnr_db": self.sqnr / self.images,
        }
        return {**found, **self.tops()}

    def tops(self) -> dict[str, int]:
        """Correct answers; nothing where no answer is known."""
        return dict(zip(("top1", "top5"), self.hits)) if self.known else {}


def compare(exact: Array, fixed: Array, logits: tuple[Array, Array]) -> dict[str, Any]:
    """One image's class scores (classes,) on the first side and on another, and the logits of both: the other's part of a
    Record."""
    p, q = exact.astype(np.float64), fixed.astype(np.float64)
    probable = p.min(initial=0) >= 0 and abs(p.sum() - 1) < 1e-3
    a, b = (x.astype(np.float64).ravel() for x in logits)
    signal, error = float((a * a).sum()), float(((a - b) ** 2).sum())
    return {
        "best": best(fixed),
        "kl": float((p * (np.log(p + 1e-12) - np.log(q + 1e-12))).sum()) if probable else 0.0,
        "sqnr": 10 * log10(max(signal, 1e-300) / max(error, 1e-20 * signal, 1e-300)),
    }


def best(row: Array) -> list[int]:
    """The classes of the largest scores, the first of equals first."""
    found: list[int] = np.argsort(-row, kind="stable")[:TOP].tolist()
    return found


def reduce(
    records: Iterable[Record], sides: Sequence[str], names: tuple[str, str], truth: Callable[[int], int | None]
) -> dict[str, Evaluation]:
    """An Evaluation per side. ``names`` are those that ``scores`` found; sums are taken in the order of the images."""
    found = {side: Evaluation(*names) for side in sides}
    first, *others = sides
    for record in sorted(records, key=lambda r: r["image"]):
        answer = truth(record["image"])
        found[first].add(record[first], answer)
        for side in others:
            found[side].add_compared(record[first], record[side], answer)
    return found


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval of a share; (0, 1) of nothing."""
    if not count:
        return 0.0, 1.0
    p = hits / count
    middle, half = p + z * z / (2 * count), z * sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    return max(0.0, (middle - half) / (1 + z * z / count)), min(1.0, (middle + half) / (1 + z * z / count))


def evaluate(
    reference: Net, fixed: Net, inputs: Iterable[tuple[Mapping[str, Array], Sequence[int | None]]]
) -> tuple[Evaluation, Evaluation]:
    """Run two Nets of one prototxt over batches with their true classes: ``reference`` in float, ``fixed`` on an overlay.

    Both need their logits kept: ``Net(..., keep=[scores(graph)[1]])``. Raises UsageError without any input.
    """
    names = scores(reference.graph)
    first, found = Evaluation(*names), Evaluation(*names)
    for batch, truth in inputs:
        (exact, behind), (codes, behind_codes) = (answers(net, names, batch) for net in (reference, fixed))
        for i, wanted in enumerate(truth):
            first.add(best(exact[i]), wanted)
            found.add_compared(best(exact[i]), compare(exact[i], codes[i], (behind[i], behind_codes[i])), wanted)
    if not found.images:
        raise UsageError("evaluate: there is no input")
    return first, found


def answers(net: Net, names: tuple[str, str], feed: Mapping[str, Array]) -> tuple[Array, Array]:
    """Class scores (N, classes) and logits (N, ...) of a batch; ``names`` are those that ``scores`` found."""
    found = net.forward(**feed)[names[0]]
    count = len(next(iter(feed.values())))
    if len(found) != count:
        raise UsageError(f"evaluate: {names[0]!r} has {len(found)} rows for {count} images, expected one for each")
    return found.reshape(count, -1), net.blobs[names[1]]


def scores(graph: Graph) -> tuple[str, str]:
    """Caffe's names of the class scores and of the logits behind them: what the Softmax reads, else the same blob.

    Raises UsageError for a network with several outputs, none of which is a Softmax.
    """
    writer = {top: layer for layer in graph.layers for top in layer.tops}
    ends = [name for name in graph.outputs if isinstance(writer[graph.latest[name]], Softmax)] or graph.outputs
    if len(ends) != 1:
        raise UsageError(f"evaluate: one output of class scores is needed, this network has {', '.join(ends)}")
    layer = writer[graph.latest[ends[0]]]
    return ends[0], graph.caffe_name(layer.bottoms[0]) if isinstance(layer, Softmax) else ends[0]
