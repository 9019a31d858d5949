"""What the outputs of a network are, by the layers that make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import PluginError, UsageError
from chai.evaluate.outputs import kind_of, output, parse
from chai.graph import Layer
from chai.layers import find, types

INPUT = 'input: "data" input_shape { dim: 2 dim: 3 dim: 6 dim: 8 }\n'
FC = 'layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 5 } }\n'
CONV = """layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 1 } }\n"""
FLAG = "user_defined_layer: true xcustom_param { float_args:"
SSD = """layer { name: "loc" type: "Convolution" bottom: "data" top: "loc"
  convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "conf" type: "Convolution" bottom: "data" top: "conf" convolution_param { num_output: 3 kernel_size: 1 } }
layer { name: "priors" type: "PriorBox" bottom: "loc" bottom: "data" top: "priors" prior_box_param { min_size: 3 } }
layer { name: "locs" type: "Permute" bottom: "loc" top: "locs" permute_param { order: [0, 2, 3, 1] } }
layer { name: "loc_flat" type: "Flatten" bottom: "locs" top: "loc_flat" }
layer { name: "confs" type: "Permute" bottom: "conf" top: "confs" permute_param { order: [0, 2, 3, 1] } }
layer { name: "boxes" type: "Reshape" bottom: "confs" top: "per_box" reshape_param { shape { dim: 0 dim: -1 dim: 3 } } }
layer { name: "soft" type: "Softmax" bottom: "per_box" top: "soft" softmax_param { axis: 2 } }
layer { name: "flat" type: "Flatten" bottom: "soft" top: "flat" }
layer { name: "detection_out" type: "DetectionOutput" bottom: "loc_flat" bottom: "flat" bottom: "priors"
  top: "detection_out" detection_output_param { num_classes: 3 nms_param { nms_threshold: 0.45 }
  code_type: CENTER_SIZE keep_top_k: 20 confidence_threshold: 0.05 } }
"""


def net(folder: Path, layers: str, **options: Any) -> chai.Net:
    path = folder / "net.prototxt"
    path.write_text(INPUT + layers)
    return chai.Net(path, device="float", **options)


def layer(type: str, bottom: str, top: str, params: str = "") -> str:
    return f'layer {{ name: "{top}" type: "{type}" bottom: "{bottom}" top: "{top}" {params} }}\n'


@pytest.mark.parametrize(
    ("layers", "blob", "kind", "logits", "decision", "classes"),
    [
        (FC, "fc", "scores", "fc", None, 5),
        (FC + layer("Softmax", "fc", "prob"), "prob", "scores", "fc", "softmax", 5),
        (FC + layer("Sigmoid", "fc", "prob"), "prob", "scores", "fc", "sigmoid", 5),
        (FC + layer("ArgMax", "fc", "best"), "best", "scores", "fc", "argmax", 5),
        (FC + layer("ArgMax", "fc", "best", "argmax_param { top_k: 3 }"), "best", "scores", "fc", "argmax", 5),
        (
            CONV + layer("Pooling", "conv", "pool", "pooling_param { pool: AVE global_pooling: true }"),
            "pool", "scores", "pool", None, 4,
        ),
        (CONV, "conv", "map", "conv", None, 4),
        (CONV + layer("Softmax", "conv", "prob"), "prob", "map", "conv", "softmax", 4),
        (CONV + layer("ArgMax", "conv", "best", "argmax_param { axis: 1 }"), "best", "map", "conv", "argmax", 4),
        (CONV.replace("num_output: 4", "num_output: 1"), "conv", "map", "conv", None, None),
        (CONV.replace("num_output: 4", "num_output: 1") + layer("Sigmoid", "conv", "p"), "p", "map", "conv", "sigmoid", 2),
        (SSD, "detection_out", "boxes", None, None, 2),
        # layers that only relay a blob hide nothing
        (FC + layer("Softmax", "fc", "prob") + layer("Flatten", "prob", "flat"), "flat", "scores", "fc", "softmax", 5),
        (SSD + layer("Dropout", "detection_out", "kept"), "kept", "boxes", None, None, 2),
    ],
)  # fmt: skip
def test_an_output_is_what_its_producer_makes(
    tmp_path: Path, layers: str, blob: str, kind: str, logits: str | None, decision: str | None, classes: int | None
) -> None:
    choice = output(net(tmp_path, layers))
    assert (choice.blob, choice.kind, choice.logits) == (blob, kind, logits)
    assert (choice.decision, choice.classes) == (decision, classes)


def test_every_type_that_makes_boxes() -> None:
    """Any other dynamic output is of no kind."""
    kinds = {
        name: layer_type.output_kind(layer_type.__new__(layer_type), (1, 1, 1, 7))
        for name in types()
        if (layer_type := kind(name)).dynamic
    }
    assert {name for name, output_kind in kinds.items() if output_kind == "boxes"} == {
        "DetectionOutput", "YoloDetectionOutput", "Yolov3DetectionOutput", "AnchoredDetectionOutput", "AnchorFreeDetectionOutput",
        "DecodedDetectionOutput",
    }  # fmt: skip
    assert {output_kind for name, output_kind in kinds.items()} == {"boxes", None}


def kind(name: str) -> type[Layer]:
    layer_type = find(name)
    assert layer_type is not None
    return layer_type


def test_a_custom_layer_says_what_its_output_is(tmp_path: Path) -> None:
    layers = CONV.replace("num_output: 4", "num_output: 16") + layer(
        "Region", "conv", "region", f"{FLAG} [3, 4, 2, 1] }}"
    )
    layers += layer("RegionOutput", "region", "found", f"{FLAG} [0.24, 0.45, 5, 1.3, 1.7, 3.2, 4.0] }}")
    region = net(tmp_path, layers, jit=False)
    assert region.shapes["found"] == (2, 1, 5, 7) and kind_of(region, "found") == "boxes"
    with pytest.raises(PluginError, match=r"output 'box': expected one of scores, boxes, map"):
        chai.custom("Thing", output="box")(lambda x: None)  # type: ignore[arg-type]


def test_one_of_several_outputs(tmp_path: Path) -> None:
    fork = FC.replace('"fc"', '"other"')
    assert output(net(tmp_path, FC + fork + layer("Softmax", "fc", "prob"))).blob == "prob"  # the Softmax's
    assert output(net(tmp_path, SSD + FC + layer("Softmax", "fc", "prob"))).blob == "detection_out"
    split = 'layer { name: "s" type: "Split" bottom: "prob" top: "a" top: "b" }\n'
    assert output(net(tmp_path, FC + layer("Softmax", "fc", "prob") + split)).blob == "a"  # twice the same
    both = net(tmp_path, FC + fork)
    with pytest.raises(UsageError, match=r"has fc \(2x5, scores\), other \(2x5, scores\)") as raised:
        output(both)
    assert raised.value.hint == "--output BLOB=scores|boxes|map names one"
    assert output(both, ("other", "scores")).blob == "other"


def test_what_is_of_no_kind_is_refused_or_named(tmp_path: Path) -> None:
    nets = net(tmp_path, FC.replace("num_output: 5", "num_output: 1"))
    with pytest.raises(UsageError, match=r"has fc \(2x1, no kind\)"):
        output(nets)
    with pytest.raises(UsageError, match=r"--output fc=map: its shape is 2x1, expected \(N, C, H, W\)"):
        output(nets, ("fc", "map"))
    with pytest.raises(UsageError, match=r"--output fc=boxes: its shape is 2x1, expected rows of 7 numbers"):
        output(nets, ("fc", "boxes"))
    with pytest.raises(UsageError, match="has no output 'cf'"):
        output(nets, ("cf", "scores"))


@pytest.mark.parametrize("text", ["prob", "=map", "prob=", "prob=box", "prob=map "])
def test_an_output_option_that_says_nothing(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected BLOB=scores\|boxes\|map"):
        parse(text)
    assert parse("a=b=map") == ("a=b", "map")


def test_two_nets_in_python(tmp_path: Path) -> None:
    """Boxes in shares of the input, with their truth."""
    data = np.random.default_rng(0).normal(size=(2, 3, 6, 8)).astype(np.float32)
    path = tmp_path / "net.prototxt"
    path.write_text(INPUT + SSD)
    exact = chai.Net(path, device="float")
    fixed = chai.Net(path, calibrate=data)
    for a, b in zip(exact.params.values(), fixed.params.values()):
        for one, other in zip(a, b):
            one[:] = other[:] = np.random.default_rng(one.size).normal(size=one.shape)
    rows = exact.forward(data)["detection_out"].reshape(-1, 7)
    rows = rows.copy()
    rows[:, 3:] = rows[:, 3:].clip(0, 1)
    rows = rows[(rows[:, 3:5] < rows[:, 5:]).all(1)]
    truth = [[[int(r[1]), *r[3:].tolist()] for r in rows if r[0] == image] for image in range(2)]
    first, second = chai.evaluate.evaluate(exact, fixed, [({"data": data}, truth)])
    assert (first.images, first.known, first.mean_average_precision) == (2, 2, pytest.approx(1.0))
    assert 0.5 < second.pairs / second.expected <= 1
