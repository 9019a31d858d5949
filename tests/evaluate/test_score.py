"""The figures against loops of plain Python."""

from __future__ import annotations

from math import exp, isclose, log, log10

import numpy as np
import pytest

from chai.evaluate import Evaluation, Output, wilson
from chai.evaluate.kinds import reduce
from chai.evaluate.measure import decibels
from chai.evaluate.score import Scores, best
from chai.images.preprocess import UNIT

SOFTMAX = Output("prob", "scores", "fc", "softmax", 7)


def softmax(row: list[float]) -> list[float]:
    total = sum(exp(x) for x in row)
    return [exp(x) / total for x in row]


def test_kl_and_sqnr() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 7)).tolist()
    p, q = softmax(a), softmax(b)
    sides = {"float": (np.array(p), np.array(a)), "emulator": (np.array(q), np.array(b))}
    record = Scores(SOFTMAX).record(sides, UNIT, None)
    entry = record["emulator"]
    assert isclose(entry["kl"], sum(x * log(x / y) for x, y in zip(p, q)), rel_tol=1e-9)
    noise = sum((x - y) ** 2 for x, y in zip(a, b))
    assert isclose(entry["sqnr"], 10 * log10(sum(x * x for x in a) / noise))
    assert entry["best"] == sorted(range(7), key=lambda i: -q[i])[:5]


@pytest.mark.parametrize("decision", [None, "sigmoid"])
def test_scores_that_are_no_softmax_have_no_kl(decision: str | None) -> None:
    """Not even where they happen to be shares that sum to 1."""
    measure = Scores(Output("fc", "scores", "fc", decision, 2))
    one, other = np.array([0.25, 0.75]), np.array([0.5, 0.5])
    record = measure.record({"float": (one, one), "emulator": (other, other)}, UNIT, None)
    assert record["emulator"]["kl"] is None
    first, second = reduce([{"image": 0, **record}], ["float", "emulator"], measure, lambda _: None).values()
    assert second.to_json()["kl"] is None and first.judged() == {}
    rows = measure.rows({"float": first, "emulator": second})
    assert ["KL(float || it), nats", "", "-"] in rows


def test_an_arg_max_names_its_classes_itself() -> None:
    measure = Scores(Output("best", "scores", "fc", "argmax", 9))
    one, other = np.array([[7.0, 2.0]]), np.array([[2.0, 7.0]])
    sides = {"float": (one.reshape(-1), one), "emulator": (other.reshape(-1), other)}
    record = measure.record(sides, UNIT, None)
    assert record["float"] == [7, 2] and record["emulator"]["best"] == [2, 7]


def test_sqnr_is_bounded() -> None:
    one = np.array([3.0, -1.0])
    assert decibels(one, one) == pytest.approx(200)  # equal: bounded, not infinite
    assert decibels(one * 0, one * 0) == 0.0


@pytest.mark.parametrize(("exact", "other"), [(1.0, np.inf), (0.0, 1e20), (0.0, -np.inf)])
def test_an_error_beyond_all_bounds_has_an_sqnr(exact: float, other: float) -> None:
    assert decibels(np.float32([exact]), np.float32([other])) == -np.inf


def test_of_equal_scores_the_first_is_best() -> None:
    assert best(np.array([0.1, 0.4, 0.1, 0.4])) == [1, 3, 0, 2]


def test_all_images_in_any_order_give_the_same_sums() -> None:
    rng = np.random.default_rng(5)
    records = []
    for image, (kl, sqnr) in enumerate(rng.random((50, 2)).tolist()):
        classes = rng.permutation(9)[:5].tolist()
        records.append(
            {"image": image, "float": [1, 2, 3, 4, 5], "emulator": {"best": classes, "kl": kl, "sqnr": sqnr}}
        )
    truth = {0: 5, 3: 1, 4: 8}
    first, second = reduce(records, ["float", "emulator"], Scores(SOFTMAX), truth.get).values()
    shuffled = [records[i] for i in rng.permutation(50)]
    assert list(reduce(shuffled, ["float", "emulator"], Scores(SOFTMAX), truth.get).values()) == [first, second]
    assert second.images == 50 and second.known == 3
    assert second.agree == sum(r["emulator"]["best"][0] == 1 for r in records)
    assert isinstance(first, Evaluation) and isinstance(second, Evaluation)
    assert (first.images, first.known, first.hits) == (50, 3, [1, 2])
    assert second.hits == [
        sum(records[i]["emulator"]["best"][0] == t for i, t in truth.items()),
        sum(t in records[i]["emulator"]["best"] for i, t in truth.items()),
    ]


def test_wilson() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    low, high = wilson(40, 40)
    assert (round(low, 3), high) == (0.912, 1.0)
    for bound in wilson(7, 20):  # where it is, the normal test of that share just gives the 7 of 20
        assert isclose(abs(7 / 20 - bound) / (bound * (1 - bound) / 20) ** 0.5, 1.96)
