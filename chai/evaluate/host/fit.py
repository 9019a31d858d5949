"""Fit the numbers of a host model to counted or timed passes: non-negative least squares of relative errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

from ...blob import Array
from ...overlay.host_model import LANES, LOAD, OTHERS, PASS, SEGMENT, STORE
from ...report.host_work import HostWork, Row, summed
from ...util.lazy_numpy import np

AROUND = ("feed", "between", "call")  # kinds of row around the steps of a pass
MOVES = {"store": STORE, "fetch": LOAD}
TERMS = {  # what may count in a group; more would follow the samples and not the work
    "driver": ("call", "conversion", "step", "element"),
    "conversions": ("call", "plane", "row", "word", "element"),
    "layers": ("call", "blob", "row", "element", "tap", "mac"),
}
DIGITS = 4  # of a number
LEAST = 0.01  # share of a sample that a term has to be
GUESSED = "guess"  # the source of numbers for layers of other types


class HostSample(NamedTuple):
    """An amount and what it is for: counts of one step, or of several of the same kind together."""

    group: str
    kind: str
    counts: Mapping[str, float]
    amount: float


def samples(work: Sequence[HostWork], rows: Iterable[Row]) -> Iterator[HostSample]:
    """Yield what the rows of a network's pass say of each kind of its steps. Raises ValueError for a row of no step."""
    steps = {one.name: one for one in work if one.group != "driver"}
    moves = {(one.kind, one.name): one for one in work if one.group == "driver"}
    around: Counter[tuple[str, str]] = Counter()
    for kind, name, amount in rows:
        if kind in AROUND:
            around["driver", PASS] += amount
        elif kind in (LANES, "driver"):
            around["driver", SEGMENT if kind == "driver" else LANES] += amount
        elif one := moves.get((MOVES[kind], name)) if kind in MOVES else steps.get(name):
            yield HostSample(one.group, one.kind, one.counts, amount)
        else:
            raise ValueError(f"there is no step {kind} {name}")
    for (group, kind), amount in around.items():
        if counts := summed(work, group, kind):
            yield HostSample(group, kind, counts, amount)


def fitted(every: Iterable[HostSample], source: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the costs of a host model by group and kind, all of this ``source`` but those of ``others``."""
    kinds: dict[tuple[str, str], list[HostSample]] = {}
    for sample in every:
        if sample.amount > 0:
            kinds.setdefault((sample.group, sample.kind), []).append(sample)
    costs: dict[str, dict[str, dict[str, Any]]] = {group: {} for group in TERMS}
    for (group, kind), some in sorted(kinds.items()):
        costs[group][kind] = {"source": source, **_cost(TERMS[group], some)}
    costs["layers"][OTHERS] = {"source": GUESSED, **_of_others(kinds)}
    return costs


def _cost(terms: Sequence[str], some: Sequence[HostSample]) -> dict[str, float]:
    """Return the numbers of the terms whose sums come nearest to the samples' amounts."""
    counts = np.array([[sample.counts.get(term, 0) for term in terms] for sample in some], np.float64)
    amounts = np.array([sample.amount for sample in some], np.float64)
    shares = counts / amounts[:, None]  # of each amount, for a number of 1
    numbers = least_squares(shares, np.ones(len(some)))
    kept = (shares * numbers).max(0) >= LEAST
    numbers[kept] = least_squares(shares[:, kept], np.ones(len(some)))
    return {term: rounded(float(number)) for term, number, keep in zip(terms, numbers, kept) if keep and number > 0}


def _of_others(kinds: Mapping[tuple[str, str], Sequence[HostSample]]) -> dict[str, float]:
    """Return the numbers of layers without samples: medians over the types that have some, by their smallest and largest."""
    calls, elements, macs = list[float](), list[float](), list[float]()
    for (group, _), some in kinds.items():
        if group != "layers":
            continue
        ordered = sorted(some, key=lambda sample: sample.counts["element"])
        calls.append(ordered[0].amount)
        rest, counts = ordered[-1].amount - ordered[0].amount, ordered[-1].counts
        if counts.get("mac"):
            macs.append(max(rest, 0) / counts["mac"])
        else:
            elements.append(max(rest, 0) / counts["element"])
    columns = {"call": calls, "element": elements, "mac": macs}
    return {term: rounded(median(numbers)) for term, numbers in columns.items() if numbers}


def least_squares(matrix: Array, target: Array) -> Array:
    """Return the vector without negative numbers whose product with a matrix is nearest to the target.

    It is zero but for one set of columns: of all whose own least squares are not negative, the smallest that comes nearest.
    """
    scale = np.sqrt((matrix**2).sum(0))
    scale[scale == 0] = 1  # a column of zeros
    nearest, least = np.zeros(len(scale)), float(target @ target)
    tolerance = 1e-12 * least
    for count in range(1, len(scale) + 1):
        for columns in map(list, combinations(range(len(scale)), count)):
            x = np.zeros(len(scale))
            x[columns] = np.linalg.lstsq(matrix[:, columns] / scale[columns], target, rcond=None)[0]
            error = float(((matrix @ (x / scale) - target) ** 2).sum())
            if (x >= 0).all() and error < least - tolerance:
                nearest, least = x / scale, error
    return nearest


def rounded(number: float) -> float:
    """Return a number with as many digits as a fit is worth."""
    short = float(f"{number:.{DIGITS}g}")
    return int(short) if short.is_integer() else short
