"""What one image says about a device in fixed point, and what many say together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log10, sqrt
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..graph import Graph
from ..layers.softmax import Softmax
from ..lazy import np
from ..net import Net

if TYPE_CHECKING:
    from ..graph import Array

TOP = 5
Record = dict[
    str, Any
]  # {"image": index, "float": best classes, DEVICE: {"best": classes, "kl": nats, "sqnr": dB}, ...}


@dataclass
class Evaluation:
    """Counts over images; sums of what is averaged. ``blob`` are the class scores, ``logits`` what they are made from.

    ``agree``       images whose best class is the same in float and fixed point
    ``kl``          sum over images of KL(float || fixed), nats; 0 where the scores are no probabilities
    ``sqnr``        sum over images of the logits' SQNR in dB
    ``hits``        correct answers, {"float": [top-1, top-5], "fixed": ...}, of the ``known`` images
    """

    blob: str
    logits: str
    images: int = 0
    agree: int = 0
    kl: float = 0.0
    sqnr: float = 0.0
    known: int = 0
    hits: dict[str, list[int]] = field(default_factory=lambda: {"float": [0, 0], "fixed": [0, 0]})

    @property
    def interval(self) -> tuple[float, float]:
        """95 % confidence interval of the share of images that agree (Wilson's)."""
        return wilson(self.agree, self.images)

    def add(self, exact: Sequence[int], seen: Mapping[str, Any], truth: int | None) -> None:
        """One image: float's best classes, what ``compare`` found, and the true class if it is known."""
        self.images += 1
        self.agree += exact[0] == seen["best"][0]
        self.kl += seen["kl"]
        self.sqnr += seen["sqnr"]
        if truth is not None:
            self.known += 1
            for name, best in (("float", exact), ("fixed", seen["best"])):
                self.hits[name][0] += best[0] == truth
                self.hits[name][1] += truth in best

    def to_json(self) -> dict[str, Any]:
        """Numbers only, ready for json.dumps."""
        found: dict[str, Any] = {
            "agree": self.agree,
            "agreement": self.agree / self.images,
            "agreement_95": list(self.interval),
            "kl": self.kl / self.images,
            "logits_sqnr_db": self.sqnr / self.images,
        }
        return {**found, **self.tops("fixed")}

    def tops(self, side: str) -> dict[str, int]:
        """Correct answers of "float" or "fixed"; nothing where no answer is known."""
        return dict(zip(("top1", "top5"), self.hits[side])) if self.known else {}


def compare(exact: Array, fixed: Array, logits: tuple[Array, Array]) -> dict[str, Any]:
    """One image's class scores (classes,) in float and fixed point, and the logits of both: a device's part of a Record."""
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
    records: Iterable[Record], devices: Sequence[str], names: tuple[str, str], truth: Callable[[int], int | None]
) -> dict[str, Evaluation]:
    """An Evaluation per device. ``names`` are those that ``scores`` found; sums are taken in the order of the images."""
    found = {device: Evaluation(*names) for device in devices}
    for record in sorted(records, key=lambda r: r["image"]):
        for device, evaluation in found.items():
            evaluation.add(record["float"], record[device], truth(record["image"]))
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
) -> Evaluation:
    """Run two Nets of one prototxt over batches with their true classes: ``reference`` in float, ``fixed`` on an overlay.

    Both need their logits kept: ``Net(..., keep=[scores(graph)[1]])``. Raises UsageError without any input.
    """
    names = scores(reference.graph)
    found = Evaluation(*names)
    for batch, truth in inputs:
        (exact, behind), (codes, behind_codes) = (answers(net, names, batch) for net in (reference, fixed))
        for i, wanted in enumerate(truth):
            found.add(best(exact[i]), compare(exact[i], codes[i], (behind[i], behind_codes[i])), wanted)
    if not found.images:
        raise UsageError("evaluate: there is no input")
    return found


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
    ends = [b for b in graph.outputs if isinstance(writer[b], Softmax)] or list(graph.outputs)
    if len(ends) != 1:
        names = ", ".join(map(graph.caffe_name, ends))
        raise UsageError(f"evaluate: one output of class scores is needed, this network has {names}")
    layer = writer[ends[0]]
    behind = layer.bottoms[0] if isinstance(layer, Softmax) else ends[0]
    return graph.caffe_name(ends[0]), graph.caffe_name(behind)
