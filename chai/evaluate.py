"""How often a network in fixed point says what float says, and what is true, over any number of images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log10, sqrt
from typing import TYPE_CHECKING, Any

from .errors import UsageError
from .graph import Graph
from .layers.softmax import Softmax
from .lazy import np
from .net import Net

if TYPE_CHECKING:
    from .graph import Array

TOP = 5


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

    def add(self, exact: Array, fixed: Array, logits: tuple[Array, Array], truth: Sequence[int | None]) -> None:
        """Class scores (N, classes) and logits (N, ...) of both, and the true class of each image or None."""
        self.images += len(exact)
        self.agree += int((exact.argmax(1) == fixed.argmax(1)).sum())
        p, q = exact.astype(np.float64), fixed.astype(np.float64)
        if p.min(initial=0) >= 0 and (np.abs(p.sum(1) - 1) < 1e-3).all():
            self.kl += float((p * (np.log(p + 1e-12) - np.log(q + 1e-12))).sum())
        for a, b in zip(*(x.astype(np.float64).reshape(len(x), -1) for x in logits)):
            error = float(((a - b) ** 2).sum())
            self.sqnr += 10 * log10(
                max(float((a * a).sum()), 1e-300) / max(error, 1e-20 * float((a * a).sum()), 1e-300)
            )
        for i, wanted in enumerate(truth):
            if wanted is not None:
                self.known += 1
                for name, scores in (("float", exact), ("fixed", fixed)):
                    order = np.argsort(-scores[i], kind="stable")[:TOP].tolist()
                    self.hits[name][0] += order[0] == wanted
                    self.hits[name][1] += wanted in order

    def to_json(self) -> dict[str, Any]:
        """Numbers and names only, ready for json.dumps."""
        low, high = self.interval
        found = {
            "blob": self.blob,
            "logits": self.logits,
            "images": self.images,
            "agree": self.agree,
            "agreement": self.agree / self.images,
            "agreement_95": [low, high],
            "kl": self.kl / self.images,
            "logits_sqnr_db": self.sqnr / self.images,
            "known": self.known,
        }
        for name, (top1, top5) in self.hits.items() if self.known else ():
            found[name] = {"top1": top1, "top5": top5}
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
    blob, logits = scores(reference.graph)
    found = Evaluation(blob, logits)
    for batch, truth in inputs:
        exact, codes = reference.forward(**batch)[blob], fixed.forward(**batch)[blob]
        pair = reference.blobs[logits], fixed.blobs[logits]
        found.add(exact.reshape(len(exact), -1), codes.reshape(len(codes), -1), pair, truth)
    if not found.images:
        raise UsageError("evaluate: there is no input")
    return found


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
