"""Real networks: each quantises, runs, and its deviation is reported; with custom layers too.

The large ones and the whole set of recipes: python -m pytest -m slow tests/quantizer/test_networks.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.images import files as images
from chai.images.preprocess import Preprocess
from chai.quantizer import PLAIN, Recipe, quantize
from chai.util.paths import resource
from chai.zoo.card_file import read_card
from tests.conftest import need_models, report
from tests.e2e.test_caffe_models import NAMES, cases
from tests.passes.common import DEEP, MAX, network
from tests.quantizer.test_writeback import SHAPE, batches, save

Array = np.ndarray
FULL = Recipe("mse", "mse", 0.5, "compensated", "tuned")
SMALL = ["cifar_resnet20", "rfb320_face", "yuface_v1_ssd", "mtcnn_det3", "wechat_qr_sr", "synth_fcn8ish"]
CHEAP = "v1_lenet", 6, "Xilinx"
QUICK = [("cifar_resnet20", 8), ("mtcnn_det3", 8), ("synth_fcn8ish", 6)]  # fcn8ish also has deconvolutions


def decibels(wanted: Array, values: Array) -> float:
    error = float(((values.astype(float) - wanted) ** 2).sum())
    return 10 * np.log10(float((wanted.astype(float) ** 2).sum()) / error) if error else np.inf


def both(files: tuple[Path, Path], out: Path, data: list[Array], test: Array, **options: Any) -> tuple[Any, Any, Any]:
    """Outputs of ``test`` in float and quantised, and the result."""
    result = quantize(*files, data, out, **options)
    custom = {"custom": options["custom"]} if "custom" in options else {}
    with chai.Net(*files, "float", **custom) as exact, chai.Net(out, result.caffemodel, "emulator", **custom) as fixed:
        wanted, outputs = exact.forward(test), fixed.forward(test)
        assert "fpga:Convolution" in fixed.schedule.engines()
        assert all(np.isfinite(v).all() for v in outputs.values())
        return wanted, outputs, result


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        pytest.param(name, bits, marks=[] if (name, bits) in QUICK else pytest.mark.slow)
        for name in SMALL
        for bits in (8, 6)
    ],
)
def test_small_networks(name: str, bits: int, tmp_path: Path) -> None:
    folder = need_models() / name
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    data = [np.load(case / "input.npy") for case in cases(name)]
    wanted, outputs, result = both(files, tmp_path / "q.prototxt", data, data[0], bits=bits, recipe=FULL, limit=8)
    assert np.isfinite(result.built.cost) and result.built.cost < (0.03 if bits == 8 else 0.6)
    for blob, value in wanted.items():
        if blob == "detection_out":
            assert bits == 6 or matched(value, outputs[blob]) == 1.0
        elif blob != "argmax":
            report(f"quantised {name}: {blob} has {decibels(value, outputs[blob]):.1f} dB in {bits} bits")
            assert decibels(value, outputs[blob]) > (15 if bits == 8 else 3)


@pytest.mark.parametrize(
    ("name", "bits", "scheme"),
    [
        pytest.param(name, bits, scheme, marks=[] if (name, bits, scheme) == CHEAP else pytest.mark.slow)
        for name in NAMES
        for bits in (8, 6, "mixed")
        for scheme in ("Xilinx", "DynamicFixed")
    ],
)
def test_no_network_is_worse_than_with_plain_maxima(name: str, bits: Any, scheme: str, tmp_path: Path) -> None:
    """Nor when it is fitted on all images; a few images of one network have two sizes."""
    folder = need_models() / name
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    data = [np.load(case / "input.npy") for case in cases(name)]
    result = quantize(*files, data[:8], tmp_path / "q.prototxt", bits=bits, scheme=scheme, limit=16, custom=folder)
    assert result.cost <= result.plain and result.built.cost <= result.plain
    assert sum(result.widened.values()) <= 0.1
    report(f"quantised {name} in {bits} bits {scheme}: cost {result.cost:.3g}, plain maxima {result.plain:.3g}")


def matched(wanted: Array, detections: Array) -> float:
    """Share of the sure detections that have one of the same label with IoU >= 0.9."""
    rows = [r for r in wanted.reshape(-1, 7) if r[2] > 0.6]
    others = detections.reshape(-1, 7)
    assert rows
    hits = sum(any(o[1] == r[1] and iou(r[3:], o[3:]) >= 0.9 for o in others) for r in rows)
    return hits / len(rows)


def iou(a: Array, b: Array) -> float:
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inside = float(np.prod(np.maximum(sides, 0)))
    return inside / (float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - inside)


def test_faces_match(tmp_path: Path) -> None:
    """Boxes of the anchors that are faces in float, from the scores and boxes of the detector."""
    folder = need_models() / "rfb320_face"
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    data = [np.load(case / "input.npy") for case in cases("rfb320_face")]
    wanted, outputs, _ = both(files, tmp_path / "q.prototxt", data, data[0], recipe=Recipe())
    faces = wanted["scores"][0, :, 1] > 0.9
    assert faces.sum() > 5
    assert (outputs["scores"][0, faces, 1] > 0.5).mean() > 0.97
    # centre and size are offsets of the anchor: close in its units
    assert np.abs(wanted["boxes"][0, faces] - outputs["boxes"][0, faces]).mean() < 0.1


def digits() -> list[Array]:
    prepare = read_card(resource("prototxt", "digits.prototxt")).preprocess
    files = images.find([resource("prototxt", "digits_images")])
    items = np.stack([prepare(images.read(f), (1, 1, 8, 8)) for f in files])
    return [items[i : i + 16] for i in range(0, len(items), 16)]


@pytest.mark.parametrize(
    ("bits", "scheme"),
    [
        *((8, "Xilinx"), (6, "DynamicFixed")),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in ((6, "Xilinx"), (8, "DynamicFixed"))),
    ],
)
def test_the_digits_with_their_custom_layer(bits: int, scheme: str, tmp_path: Path) -> None:
    files = resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")
    data = digits()
    test = np.concatenate(data[1::2])
    wanted, outputs, result = both(files, tmp_path / "q.prototxt", data[::2], test, bits=bits, scheme=scheme)
    agree = (wanted["prob"].argmax(1) == outputs["prob"].argmax(1)).mean()
    report(f"quantised digits: {100 * agree:.1f} % of {len(test)} agree in {bits} bits {scheme}, {result.built.recipe}")
    assert agree >= 0.97
    assert result.built.cost <= result.plain


def test_a_custom_layer_in_the_middle(tmp_path: Path) -> None:
    """It runs in the float pass and between the codes, and what it makes has a format of its own."""

    def bend(x: Any) -> None:
        x.top[0][...] = np.tanh(x.bottom[0]) * 3

    lines = f"""
        a Convolution data -> a : {DEEP}
        ra ReLU a -> a
        bend bend a -> m : user_defined_layer: true xcustom_param {{ top_dim: [1, 16, 9, 11] }}
        pool Pooling m -> p : {MAX}
        b Convolution p -> b : {DEEP}
        """
    source = network(tmp_path, lines, SHAPE, custom={"bend": bend})
    save(source, tmp_path / "net.caffemodel")
    files = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    data = batches()
    for bits, least in ((8, 25), (6, 14)):
        wanted, outputs, result = both(
            files, tmp_path / "q.prototxt", data, data[0], bits=bits, recipe=Recipe("mse", "mse", 0.5, "compensated", "tuned"),
            custom={"bend": bend},
        )  # fmt: skip
        assert 1 < result.built.formats["m"].value <= 3.0
        assert result.built.formats["m"].bits == bits  # a convolution reads it, through a pool
        assert decibels(wanted["b"], outputs["b"]) > least
        assert "m" not in result.built.factors and "a@ra" not in result.built.factors
    text = (tmp_path / "q.prototxt").read_text()
    assert text.count("precision_param") == 4


@pytest.mark.slow
def test_googlenet_with_gemm(tmp_path: Path) -> None:
    folder = need_models() / "googlenet"
    files = resource("prototxt", "googlenet_gemm.prototxt"), folder / "weights.caffemodel"
    data = [np.load(case / "input.npy") for case in cases("googlenet")]
    chai.load_custom(resource("custom"))
    wanted, outputs, _ = both(files, tmp_path / "q.prototxt", data[:6], data[-1], effort="fast")
    assert wanted["prob"].argmax() == outputs["prob"].argmax()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["squeezenet_v1.1", "googlenet"])
@pytest.mark.parametrize("bits", [8, 6])
def test_recipes_beat_plain_maxima(name: str, bits: int, tmp_path: Path) -> None:
    folder = need_models() / name
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    side = 224 if name == "googlenet" else 227
    prepare = Preprocess(resize=(256, 256), crop=(side, side), mean=(104, 117, 123))
    photos = images.find([need_models() / "calibration_images"])[:48]
    items = np.stack([prepare(images.read(f), (1, 3, side, side)) for f in photos])
    data, test = [items[i : i + 8] for i in range(0, 16, 8)], items[16:]
    better = Recipe("after", "mse", 0.0, "compensated")
    kl = {}
    for recipe in (PLAIN, better):
        wanted, outputs, _ = both(files, tmp_path / "q.prototxt", data, test, bits=bits, recipe=recipe)
        p, q = (v["prob"].reshape(len(test), -1).astype(float) for v in (wanted, outputs))
        kl[recipe] = (p * (np.log(p + 1e-12) - np.log(q + 1e-12))).sum(1)
    told = " and ".join(f"{v.mean():.4f} ({recipe})" for recipe, v in kl.items())
    report(f"quantised {name}: KL {told} in {bits} bits on {len(test)} other photos")
    assert kl[better].mean() < kl[PLAIN].mean()
