"""Losses and measures, against the formulas in Caffe's sources written as loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import layers
from tests.conftest import examples

from .test_refusals import LOSSES, raised_in_layers, refusals_of_layers

Array = np.ndarray
SCORES = (2, 5, 3, 7)  # N, classes, H, W
PAIRS = (6, 4)


def layer(type: str, bottoms: list[Array], fields: str = "", tops: int = 1, folder: Path | None = None) -> list[Array]:
    """The tops of one loss of a network whose inputs are all labels or data."""
    assert folder is not None
    names = [f"in{i}" for i in range(len(bottoms))]
    shapes = " ".join(f"shape {{ {' '.join(f'dim: {d}' for d in b.shape)} }}" for b in bottoms)
    wires = " ".join(f'bottom: "{n}"' for n in names) + "".join(f' top: "t{i}"' for i in range(tops))
    path = folder / "net.prototxt"
    path.write_text(
        f'layer {{ name: "in" type: "Input" {" ".join(f"top: {chr(34)}{n}{chr(34)}" for n in names)} '
        f"input_param {{ {shapes} }} }}\n"
        f'layer {{ name: "loss" type: "{type}" {wires} {fields} }}\n'
        'layer { name: "other" type: "AbsVal" bottom: "in0" top: "abs" }\n'
    )
    outputs = chai.Net(path, device="float").forward(**dict(zip(names, bottoms)))
    assert all(outputs[f"t{i}"].dtype == np.float32 for i in range(tops))
    return [outputs[f"t{i}"] for i in range(tops)]


def softmax(values: Array) -> list[float]:
    top = max(values)
    powers = [math.exp(float(v - top)) for v in values]
    return [p / sum(powers) for p in powers]


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def labels(*shape: int, classes: int = 5, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, classes, shape).astype(np.float32)


# -- loops


def positions(x: Array, y: Array) -> list[tuple[Array, int]]:
    """The scores (classes,) and the label of every position of (N, classes, H, W)."""
    n, _, h, w = x.shape
    truth = y.reshape(n, h, w)
    return [(x[i, :, r, c], int(truth[i, r, c])) for i in range(n) for r in range(h) for c in range(w)]


def cross_entropy(x: Array, y: Array, ignore: int | None, divide: Callable[[int], float]) -> float:
    total, valid = 0.0, 0
    for scores, label in positions(x, y):
        if label != ignore:
            total -= math.log(max(softmax(scores)[label], 1.1754944e-38))
            valid += 1
    return total / max(divide(valid), 1.0)


NORMAL: dict[str, tuple[str, Callable[[int], float]]] = {
    "default": ("", lambda valid: valid),
    "full": ("normalization: FULL", lambda _: 2 * 3 * 7),
    "valid": ("normalization: VALID", lambda valid: valid),
    "batch": ("normalization: BATCH_SIZE", lambda _: 2),
    "none": ("normalization: NONE", lambda _: 1),
    "normalize": ("normalize: true", lambda valid: valid),
    "normalize off": ("normalize: false", lambda _: 2),
    "normalization wins": ("normalize: false normalization: NONE", lambda _: 1),
}


@pytest.mark.parametrize("ignore", [None, 3])
@pytest.mark.parametrize("mode", NORMAL)
def test_softmax_with_loss(tmp_path: Path, mode: str, ignore: int | None) -> None:
    x, y = drawn(*SCORES), labels(2, 1, 3, 7)
    text, divide = NORMAL[mode]
    fields = f"loss_param {{ {text} {'' if ignore is None else f'ignore_label: {ignore}'} }}"
    loss, probabilities = layer("SoftmaxWithLoss", [x, y], fields, 2, tmp_path)
    assert loss.shape == ()
    assert float(loss) == pytest.approx(cross_entropy(x, y, ignore, divide), rel=1e-5)
    assert probabilities[1, :, 2, 4] == pytest.approx(softmax(x[1, :, 2, 4]), abs=1e-6)


def test_softmax_with_loss_of_another_axis_and_a_tiny_probability(tmp_path: Path) -> None:
    x, y = drawn(3, 4, 5), labels(3, 4)
    (loss,) = layer("SoftmaxWithLoss", [x, y], "softmax_param { axis: -1 }", 1, tmp_path)
    total = -sum(math.log(softmax(x[i, j])[int(y[i, j])]) for i in range(3) for j in range(4))
    assert float(loss) == pytest.approx(total / 12, rel=1e-5)
    (worst,) = layer("SoftmaxWithLoss", [np.array([[0.0, 300.0]]), np.array([0.0])], "", 1, tmp_path)
    assert float(worst) == pytest.approx(-math.log(1.1754944e-38), rel=1e-6)
    (nothing,) = layer("SoftmaxWithLoss", [x[:, :, 0], np.full(3, 9.0)], "loss_param { ignore_label: 9 }", 1, tmp_path)
    assert float(nothing) == 0


@pytest.mark.parametrize("mode", [*NORMAL])
def test_sigmoid_cross_entropy(tmp_path: Path, mode: str) -> None:
    x, y = 3 * drawn(2, 3, 7), np.random.default_rng(2).integers(-1, 2, (2, 3, 7)).astype(np.float32)
    text, divide = NORMAL[mode]
    total, valid = 0.0, 0
    for score, target in zip(x.ravel(), y.ravel()):
        if target != -1:
            p = 1 / (1 + math.exp(-float(score)))
            total -= math.log(p) if target else math.log(1 - p)
            valid += 1
    divisor = 2 if mode == "default" else divide(valid)
    (loss,) = layer("SigmoidCrossEntropyLoss", [x, y], f"loss_param {{ ignore_label: -1 {text} }}", 1, tmp_path)
    assert float(loss) == pytest.approx(total / max(divisor, 1), rel=1e-4)


def test_sigmoid_cross_entropy_of_large_scores_is_finite(tmp_path: Path) -> None:
    (loss,) = layer("SigmoidCrossEntropyLoss", [np.array([[800.0, -800.0]]), np.array([[0.0, 1.0]])], "", 1, tmp_path)
    assert float(loss) == 1600


def test_euclidean(tmp_path: Path) -> None:
    a, b = drawn(2, 3, 5, 7), drawn(2, 3, 5, 7, seed=4)
    (loss,) = layer("EuclideanLoss", [a, b], "", 1, tmp_path)
    total = sum((float(p) - float(q)) ** 2 for p, q in zip(a.ravel(), b.ravel()))
    assert float(loss) == pytest.approx(total / 2 / 2, rel=1e-6)


@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_hinge(tmp_path: Path, norm: str) -> None:
    x, y = drawn(3, 5, 1, 2), labels(3, classes=10)
    flat, total = x.reshape(3, 10), 0.0
    for i in range(3):
        for k in range(10):
            margin = max(0.0, 1 + float(flat[i, k]) * (-1 if k == int(y[i]) else 1))
            total += margin if norm == "L1" else margin**2
    (loss,) = layer("HingeLoss", [x, y], f"hinge_loss_param {{ norm: {norm} }}", 1, tmp_path)
    assert float(loss) == pytest.approx(total / 3, rel=1e-5)


@pytest.mark.parametrize("legacy", [False, True])
def test_contrastive(tmp_path: Path, legacy: bool) -> None:
    a, b = drawn(*PAIRS) / 3, drawn(*PAIRS, seed=5) / 3
    similar = np.array([1, 0, 0, 1, 0, 0], np.float32)
    total = 0.0
    for p, q, alike in zip(a, b, similar):
        squared = sum((float(u) - float(v)) ** 2 for u, v in zip(p, q))
        apart = max(2.5 - squared, 0) if legacy else max(2.5 - math.sqrt(squared), 0) ** 2
        total += squared if alike else apart
    fields = f"contrastive_loss_param {{ margin: 2.5 legacy_version: {str(legacy).lower()} }}"
    (loss,) = layer("ContrastiveLoss", [a[..., None, None], b[..., None, None], similar], fields, 1, tmp_path)
    assert float(loss) == pytest.approx(total / 12, rel=1e-5)


@pytest.mark.parametrize("ignore", [None, 2])
def test_infogain(tmp_path: Path, ignore: int | None) -> None:
    x, y, matrix = drawn(*SCORES), labels(2, 3, 7), drawn(1, 1, 5, 5, seed=6)
    total, valid = 0.0, 0
    for scores, label in positions(x, y):
        if label != ignore:
            logs = [math.log(max(p, 1e-20)) for p in softmax(scores)]
            total -= sum(float(matrix[0, 0, label, k]) * logs[k] for k in range(5))
            valid += 1
    fields = "" if ignore is None else f"loss_param {{ ignore_label: {ignore} }}"
    loss, probabilities = layer("InfogainLoss", [x, y, matrix], fields, 2, tmp_path)
    assert float(loss) == pytest.approx(total / valid, rel=1e-4)
    assert probabilities[0, :, 1, 3] == pytest.approx(softmax(x[0, :, 1, 3]), abs=1e-6)


def test_multinomial_logistic(tmp_path: Path) -> None:
    x, y = np.abs(drawn(4, 5)), labels(4)
    x[0, int(y[0])] = 0
    total = -sum(math.log(max(float(x[i, int(y[i])]), 1e-20)) for i in range(4))
    (loss,) = layer("MultinomialLogisticLoss", [x, y], "", 1, tmp_path)
    assert float(loss) == pytest.approx(total / 4, rel=1e-6)


@settings(max_examples=examples(20))
@given(seed=st.integers(0, 10**6), top_k=st.integers(1, 5), ignore=st.sampled_from([None, 0, 2]))
def test_accuracy(tmp_path_factory: pytest.TempPathFactory, seed: int, top_k: int, ignore: int | None) -> None:
    """Scores are few whole numbers, so that many are equal; a score equal to the label's ranks before it."""
    x = np.random.default_rng(seed).integers(0, 4, SCORES).astype(np.float32)
    y = labels(2, 3, 7, seed=seed)
    right = [0] * 5
    there = [0] * 5
    for scores, label in positions(x, y):
        if label != ignore:
            there[label] += 1
            right[label] += sum(s >= scores[label] for s in scores) - 1 < top_k
    fields = f"top_k: {top_k}" + ("" if ignore is None else f" ignore_label: {ignore}")
    folder = tmp_path_factory.mktemp("net")
    share, per_class = layer("Accuracy", [x, y], f"accuracy_param {{ {fields} }}", 2, folder)
    assert float(share) == pytest.approx(sum(right) / sum(there))
    assert per_class == pytest.approx([r / t if t else 0 for r, t in zip(right, there)])


# -- refusals


LOGITS, FIVE = drawn(4, 5), labels(4)
REFUSED: dict[str, tuple[str, list[Array], str, str]] = {
    "label": (
        "SoftmaxWithLoss",
        [LOGITS, FIVE + 4],
        "",
        r"layer 'loss' \(SoftmaxWithLoss\): label \d is outside 0 .. 4",
    ),
    "negative": ("Accuracy", [LOGITS, FIVE - 5], "", r"label -\d is outside"),
    "items": ("HingeLoss", [LOGITS, labels(1, 4)], "", r"data 4x5 and labels 1x4 have different numbers of items"),
    "count": ("SoftmaxWithLoss", [LOGITS, labels(4, 2)], "", r"8 labels \(4x2\) for 4 positions of 4x5"),
    "size": ("EuclideanLoss", [LOGITS, drawn(4, 6)], "", "its bottoms 4x5 and 4x6 differ in size"),
    "hinge": ("HingeLoss", [LOGITS, labels(4, 3)], "", "12 labels"),
    "axis": ("SoftmaxWithLoss", [LOGITS, FIVE], "softmax_param { axis: 2 }", "axis 2 is outside"),
    "top_k": ("Accuracy", [LOGITS, FIVE], "accuracy_param { top_k: 6 }", "top_k 6 is more than its 5 classes"),
    "source": ("InfogainLoss", [LOGITS, FIVE], 'infogain_loss_param { source: "h" }', "its matrix is in a file"),
    "matrix": ("InfogainLoss", [LOGITS, FIVE, drawn(5, 4)], "", "the matrix is 5x4, expected 5x5"),
    "vector": ("ContrastiveLoss", [drawn(2, 3, 4), drawn(2, 3, 4), labels(2)], "", "expected a vector per item"),
    "scalar": ("EuclideanLoss", [np.array(2.0), np.array(1.0)], "", "its first bottom is a scalar"),
    "freqs": ("SoftmaxWithLoss", [LOGITS, FIVE], "loss_param { weight_by_label_freqs: true }", "is not supported"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_layer(tmp_path: Path, what: str) -> None:
    type, bottoms, fields, expected = REFUSED[what]
    with pytest.raises(chai.ModelError, match=expected) as caught:
        layer(type, bottoms, fields, 1, tmp_path)
    assert caught.value.layer == "loss"


FIELDS = {
    "SoftmaxWithLoss": ("softmax_param { axis: V }", "loss_param { ignore_label: V }"),
    "Accuracy": ("accuracy_param { axis: V }", "accuracy_param { top_k: V }", "accuracy_param { ignore_label: V }"),
    "InfogainLoss": ("infogain_loss_param { axis: V }",),
}


@pytest.mark.parametrize("value", [0, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize(("type", "fields"), [(t, f) for t, texts in FIELDS.items() for f in texts])
def test_extreme_numbers_are_taken_or_refused(tmp_path: Path, type: str, fields: str, value: int) -> None:
    bottoms = [LOGITS, FIVE, *[drawn(5, 5)] * (type == "InfogainLoss")]
    try:
        (loss,) = layer(type, bottoms, fields.replace("V", str(value)), 1, tmp_path)
    except chai.ChaiError as error:
        assert "'loss'" in str(error)
    else:
        assert np.isfinite(loss)


def test_every_refusal_is_met(tmp_path: Path) -> None:
    met: set[tuple[str, int]] = set()
    for type, bottoms, fields, _ in REFUSED.values():
        with pytest.raises(chai.ModelError) as caught:
            layer(type, bottoms, fields, 1, tmp_path)
        met |= raised_in_layers(caught.value)
    known = {place: lines for place, lines in refusals_of_layers().items() if place[0] in LOSSES}
    assert len(known) == 9
    assert not [place for place, lines in known.items() if not any((place[0], at) in met for at in lines)]


# -- in networks

NET = """
layer { name: "in" type: "Input" top: "x" top: "label" input_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "fc" type: "InnerProduct" bottom: "x" top: "fc"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "fc" top: "prob" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" loss_weight: 3 }
layer { name: "top" type: "Accuracy" bottom: "fc" bottom: "label" top: "accuracy" include { phase: TEST } }
layer { name: "twice" type: "Power" bottom: "loss" top: "twice" power_param { scale: 2 } }
"""


@pytest.mark.parametrize("device", ["float", "emulator"])
@pytest.mark.parametrize("phase", ["TEST", "TRAIN"])
def test_losses_are_computed_if_their_labels_are_fed(
    tmp_path: Path, device: str, phase: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    net = chai.Net(path, device=device, phase=phase)
    assert (net.inputs, net.outputs) == (["x"], ["prob"])
    x, label = drawn(2, 3), np.array([1, 4])
    assert list(net.forward(x)) == ["prob"]
    out = net.forward(x=x, label=label)
    assert list(out) == ["prob", "loss", *["accuracy"] * (phase == "TEST"), "twice"]
    expected = -np.mean([math.log(out["prob"][i, label[i]]) for i in range(2)])
    assert float(out["loss"]) == pytest.approx(expected, rel=1e-5)
    assert float(out["twice"]) == pytest.approx(2 * expected, rel=1e-5)
    assert [s.engine for s in net.perf.steps if s.name in ("loss", "twice")] == ["host", "host"]
    others = [(drawn(2, 3), np.array([i, 4 - i])) for i in range(5)]
    feeds = [{"x": x, "label": label}, {"x": x}, *({"x": each, "label": y} for each, y in others)]
    streamed = list(net.stream(iter(feeds)))  # in order, each with its own labels
    assert [list(each) for each in streamed] == [list(out), ["prob"], *[list(out)] * 5]
    for feed, each in zip(feeds, streamed):
        alone = net.forward(**feed)
        assert all(np.array_equal(each[name], alone[name]) for name in alone)
    with pytest.raises(chai.UsageError, match="'labels' is no input"):
        net.forward(x=x, labels=label)
    with pytest.raises(chai.UsageError, match="input 'label': expected numbers"):
        net.forward(x=x, label=["a", "b"])
    assert any("computed if label are fed: loss" in note for note in net.graph.notes)
    assert caplog.text.count("phase TRAIN chooses layers only") == (phase == "TRAIN")


def test_every_loss_of_caffe_is_here() -> None:
    computed = {n for n in layers.types() if layers.find(n).training_only and not layers.find(n).skipped}  # type: ignore[union-attr]
    assert computed == {
        "Accuracy", "ContrastiveLoss", "EuclideanLoss", "HingeLoss", "InfogainLoss", "MultinomialLogisticLoss",
        "SigmoidCrossEntropyLoss", "SoftmaxWithLoss",
    }  # fmt: skip
