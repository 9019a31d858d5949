"""Real trained networks against the outputs of real Caffe."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import chai
from tests.conftest import MODELS, need_models, report

NAMES = sorted(p.parent.name for p in MODELS.glob("*/deploy.prototxt")) if MODELS.is_dir() else []


def network(name: str) -> chai.Net:
    folder = need_models() / name
    files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    return chai.Net(*files, device="float", keep="all", custom=folder)  # one has Python layers


def worst(values: np.ndarray, wanted: np.ndarray, absolute: float, relative: np.ndarray | float) -> float:
    """The largest difference in units of its tolerance."""
    assert values.shape == wanted.shape
    difference = np.abs(values.astype(np.float64) - wanted)
    return float((difference / (absolute + relative)).max(initial=0))


def cases(name: str) -> list[Path]:
    return sorted((need_models() / name / "cases").iterdir())


def test_there_are_models_to_compare_with() -> None:
    need_models()
    assert len(NAMES) == 16


@pytest.mark.parametrize("name", NAMES)
def test_outputs_equal_caffe(name: str) -> None:
    net = network(name)
    ratio = 0.0
    for case in cases(name):
        outputs = net.forward(np.load(case / "input.npy"))
        references = np.load(case / "ref.npz")
        assert set(references.files) <= set(outputs)
        for blob in references.files:
            wanted = references[blob]
            ratio = max(ratio, worst(outputs[blob], wanted, 1e-4, 1e-4 * np.abs(wanted)))
    report(f"{name}: outputs at {ratio:.4f} of the tolerance")
    assert ratio <= 1


@pytest.mark.parametrize("name", NAMES)
def test_every_blob_equals_caffe(name: str) -> None:
    """Every layer's top as it was right after that layer: shape, mean, spread, first values; whole arrays where kept."""
    net = network(name)
    ratio, compared = 0.0, 0
    for case in cases(name):
        net.forward(np.load(case / "input.npy"))
        rows = [r for r in json.loads((case / "blobs.json").read_text()) if r["type"] != "Split"]
        kept = np.load(case / "intermediate.npz") if (case / "intermediate.npz").exists() else None
        limit = {(r["layer"], r["top"]): 2e-5 * max(abs(r["min"]), abs(r["max"])) for r in rows}
        for row in rows:
            values = top(net, row["layer"], row["top"])
            assert list(values.shape) == row["shape"], row["layer"]
            spread = 1e-4 * row["l2"] / np.sqrt(max(1, values.size))
            exact = values.astype(np.float64)
            for key, value in (("mean", exact.mean()), ("std", exact.std())):
                ratio = max(ratio, abs(value - row[key]) / spread if spread else float(value != row[key]))
            ratio = max(ratio, abs(np.linalg.norm(exact) - row["l2"]) / (1e-4 * row["l2"]) if row["l2"] else 0.0)
            scale = limit[row["layer"], row["top"]]
            ratio = max(ratio, worst(exact.ravel()[:8], np.array(row["first"]), 1e-4, scale))
            compared += 1
        for key in kept.files if kept is not None else ():
            layer, _, blob = key.rpartition("|")
            if (layer, blob) in limit:
                ratio = max(ratio, worst(top(net, layer, blob), kept[key], 1e-4, limit[layer, blob]))
    report(f"{name}: {compared} blobs at {ratio:.4f} of the tolerance")
    assert compared > 0
    assert ratio <= 1


def top(net: chai.Net, layer: str, blob: str) -> np.ndarray:
    """The top called ``blob`` of one layer, as it was right after that layer."""
    if blob in net.inputs and layer not in [known.name for known in net.graph.layers]:
        return net.blobs[blob]  # Caffe names the legacy input layer "input", blobs.json after its blob
    index = [t.partition("@")[0] for t in net.graph.layer(layer).tops].index(blob)
    return net.tops(layer)[index]


@pytest.mark.parametrize("name", ["yuface_v1_ssd"])
def test_detections_row_for_row(name: str) -> None:
    net = network(name)
    for case in cases(name):
        outputs = net.forward(np.load(case / "input.npy"))
        wanted = np.load(case / "ref.npz")["detection_out"]
        detections = outputs["detection_out"]
        assert detections.shape == wanted.shape
        assert np.array_equal(detections[..., :2], wanted[..., :2])  # image and label, in the same order
        assert np.allclose(detections, wanted, rtol=1e-4, atol=1e-4)


FORMS = ["v1", "v1_resaved_as_v2", "v2", "v2_double", "v2_legacyshape", "v2_unknownfields", "v2_unpacked"]


@pytest.mark.parametrize("text", ["v0", "v1", "v2", "v2_odd"])
@pytest.mark.parametrize("weights", FORMS)
def test_all_forms_of_one_network_agree(text: str, weights: str) -> None:
    folder = need_models() / "format_variants"
    net = chai.Net(folder / f"lenet_{text}.prototxt", folder / f"lenet_{weights}.caffemodel", device="float")
    references = np.load(folder / "ref.npz")
    scores = net.forward(references["input"])["prob"]
    assert np.allclose(scores, references[f"{weights[:2]}_prob"], rtol=1e-4, atol=1e-4)


def test_weights_of_the_training_net_fit_its_deploy_net_by_layer_name() -> None:
    folder = need_models() / "cifar_resnet20"
    net = chai.Net(
        folder / "orig.prototxt", folder / "weights.caffemodel", device="float", shapes={"Data1": (8, 3, 32, 32)}
    )
    assert any("losses" in note for note in net.graph.notes)
    logits = net.forward(np.load(folder / "cases" / "cifar_b8" / "input.npy"))
    probabilities = np.load(folder / "cases" / "cifar_b8" / "ref.npz")["prob"]
    scores = next(iter(logits.values()))
    e = np.exp(scores - scores.max(1, keepdims=True))
    assert np.allclose(e / e.sum(1, keepdims=True), probabilities, rtol=1e-3, atol=1e-4)


def test_the_gemm_variant_gives_the_same_probabilities() -> None:
    """Row for row what the built-in InnerProduct gives, from a custom layer; getPerfInfo knows its one custom layer."""
    folder = need_models() / "googlenet"
    plain = chai.Net("googlenet", folder / "weights.caffemodel", device="float")
    custom = chai.Net("googlenet_gemm", folder / "weights.caffemodel", device="float")
    for case in cases("googlenet"):
        data = np.load(case / "input.npy")
        wanted, scores = plain.forward(data)["prob"], custom.forward(data)["prob"]
        assert np.abs(scores - wanted).max() < 1e-5
        assert worst(scores, np.load(case / "ref.npz")["prob"], 1e-4, 1e-4 * np.abs(wanted)) <= 1
    assert [s.name for s in chai.getPerfInfo(custom).custom] == ["loss3/classifier"]
    assert chai.getPerfInfo(plain).custom == ()


def test_batch_and_size_change_at_run_time() -> None:
    net = network("mtcnn_det1")
    small = np.random.default_rng(1).standard_normal((3, 3, 25, 31)).astype(np.float32)
    together = net.forward(data=small)
    for i in range(3):
        alone = net.forward(data=small[i : i + 1])
        for blob, value in alone.items():
            assert np.allclose(value[0], together[blob][i], rtol=1e-5, atol=1e-6)
