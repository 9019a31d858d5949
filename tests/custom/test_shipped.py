"""Each layer of custom/ against its definition, in a network of its own: compiled, as plain Python, and by numpy."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.parser.caffemodel import write_caffemodel
from chai.util.paths import resource
from tests.layers.common import close, numbers
from tests.reference import elementwise, normalization, yolo

Make = Callable[..., chai.Net]
BATCHES = [1, 2, 3]
WITHIN = 'string_args: "WITHIN_CHANNEL"'


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("bias", [True, False])
def test_gemm(network: Make, batch: int, bias: bool) -> None:
    x, w, b = numbers(batch, 5, 3, 7), numbers(11, 105, seed=1), numbers(11, seed=2)
    weights = [w, b] if bias else [w]
    net = network("gemm", "xcustom_param { float_args: 11 }", (1, 5, 3, 7), weights)
    close(net.forward(x)["y"], elementwise.inner_product(x, w, b if bias else None, 1))


def test_gemm_takes_num_output_from_inner_product_param(network: Make) -> None:
    x, w, b = numbers(2, 13), numbers(11, 13, seed=1), numbers(11, seed=2)
    net = network("gemm", "inner_product_param { num_output: 11 }", (2, 13), weights=[w, b])
    close(net.forward(x)["y"], elementwise.inner_product(x, w, b, 1))


def test_gemm_without_num_output_says_what_is_missing(network: Make) -> None:
    with pytest.raises(chai.ChaiError, match=r"(?s)probe.*num_output"):
        network("gemm", "", (2, 13), weights=[numbers(11, 13), numbers(11)])


def test_gemm_refuses_weights_of_another_length(network: Make) -> None:
    net = network("gemm", "xcustom_param { float_args: 11 }", (2, 13), [numbers(11, 12)])
    with pytest.raises(chai.PluginError, match="probe"):
        net.forward(numbers(2, 13))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("size", "alpha", "beta", "k"), [(5, 0.7, 0.75, 1), (3, 2, 0.5, 2.5), (9, 1, 1, 1)])
def test_lrn_across_channels(
    network: Make, tmp_path: Path, batch: int, size: int, alpha: float, beta: float, k: float
) -> None:
    x = numbers(batch, 6, 5, 7)
    net = network("LRN", f"xcustom_param {{ float_args: [{size}, {alpha}, {beta}, {k}] }}", (1, 6, 5, 7))
    top = net.forward(x)["y"]
    close(top, normalization.lrn_across(x, size, alpha, beta, k))
    close(top, built_in(tmp_path, x, f"local_size: {size} alpha: {alpha} beta: {beta} k: {k}"))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("size", "alpha", "beta"), [(3, 0.7, 0.75), (5, 2, 0.5), (9, 1, 1)])
def test_lrn_within_channels(network: Make, tmp_path: Path, batch: int, size: int, alpha: float, beta: float) -> None:
    x = numbers(batch, 3, 5, 7)
    net = network("LRN", f"xcustom_param {{ float_args: [{size}, {alpha}, {beta}] {WITHIN} }}", (1, 3, 5, 7))
    top = net.forward(x)["y"]
    close(top, normalization.lrn_within(x, size, alpha, beta))
    fields = f"norm_region: WITHIN_CHANNEL local_size: {size} alpha: {alpha} beta: {beta}"
    close(top, built_in(tmp_path, x, fields))


@pytest.mark.parametrize("fields", ["local_size: 3 alpha: 0.7 k: 2", "norm_region: WITHIN_CHANNEL alpha: 0.3", ""])
def test_lrn_takes_its_arguments_from_lrn_param(network: Make, tmp_path: Path, fields: str) -> None:
    x = numbers(2, 6, 5, 7)
    net = network("LRN", f"lrn_param {{ {fields} }}", (2, 6, 5, 7))
    close(net.forward(x)["y"], built_in(tmp_path, x, fields))


def test_lrn_of_vectors(network: Make) -> None:
    """CHaiDNN's reads four axes whatever the blob has."""
    x = numbers(3, 7)
    net = network("LRN", "xcustom_param { float_args: [3, 0.7, 0.75] }", (3, 7))
    close(net.forward(x)["y"], normalization.lrn_across(x.reshape(3, 7, 1, 1), 3, 0.7, 0.75, 1).reshape(3, 7))


@pytest.mark.parametrize(
    ("fields", "shape", "words"),
    [
        ("float_args: 4", (2, 3, 5, 7), "local_size 4 is even"),
        ('string_args: "WITHIN"', (2, 3, 5, 7), "norm_region 'WITHIN'"),
        ('string_args: "WITHIN_CHANNEL"', (2, 3), "2 axes"),
        ("", (3,), "1 axis"),
    ],
)
def test_lrn_refuses(network: Make, fields: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(chai.ChaiError, match=rf"(?s)probe.*{words}"):
        network("LRN", f"xcustom_param {{ {fields} }}", shape)


def built_in(folder: Path, x: np.ndarray, fields: str) -> np.ndarray:
    """What chai's own LRN makes of x."""
    shape = " ".join(f"dim: {d}" for d in x.shape)
    (folder / "own.prototxt").write_text(
        f'layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ {shape} }} }} }}\n'
        f'layer {{ name: "lrn" type: "LRN" bottom: "x" top: "y" lrn_param {{ {fields} }} }}'
    )
    return chai.Net(folder / "own.prototxt", device="float").forward(x)["y"]


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (3, 11)])
def test_identity(network: Make, shape: tuple[int, ...]) -> None:
    x = numbers(*shape)
    assert np.array_equal(network("identity", "", shape).forward(x)["y"], x)


@pytest.mark.parametrize("batch", BATCHES)
def test_passthrough_may_change_the_shape(network: Make, batch: int) -> None:
    x = numbers(batch, 6, 5, 7)
    net = network("Python_passthrough", "xcustom_param { top_dim: [1, 14, 15] }", (1, 6, 5, 7))
    assert np.array_equal(net.forward(x)["y"], x.reshape(batch, 14, 15))


def test_passthrough_refuses_another_number_of_values(network: Make) -> None:
    net = network("Python_passthrough", "xcustom_param { top_dim: [1, 14, 16] }", (1, 6, 5, 7))
    with pytest.raises(chai.PluginError, match=r"(?s)probe.*number of values"):
        net.forward(numbers(1, 6, 5, 7))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("stride", "shape"), [(2, (8, 4, 6)), (3, (18, 6, 3)), (1, (3, 5, 7))])
def test_reorg(network: Make, batch: int, stride: int, shape: tuple[int, ...]) -> None:
    x = numbers(batch, *shape)
    net = network("Python", f"xcustom_param {{ float_args: [{stride}] }}", (1, *shape))
    top = net.forward(x)["y"]
    assert np.array_equal(top, yolo.reorg(x, stride))
    assert sorted(top.ravel()) == sorted(x.ravel())


def test_reorg_is_darknets_and_not_space_to_depth(network: Make) -> None:
    """What reorg_cpu of darknet's blas.c gives for 0, 1, 2, ... as a 4x2x4 image with stride 2."""
    x = np.arange(32, dtype=np.float32).reshape(1, 4, 2, 4)
    top = network("Python", "xcustom_param { float_args: [2] }", (1, 4, 2, 4)).forward(x)["y"]
    assert top.shape == (1, 16, 1, 2)
    assert top.ravel().astype(int).tolist() == DARKNET


DARKNET = [0, 2, 4, 6, 16, 18, 20, 22, 1, 3, 5, 7, 17, 19, 21, 23, 8, 10, 12, 14, 24, 26, 28, 30, 9, 11, 13, 15]
DARKNET += [25, 27, 29, 31]


@pytest.mark.parametrize("shape", [(2, 6, 4, 4), (2, 8, 3, 4), (2, 8, 4, 3)])
def test_reorg_refuses_what_does_not_divide(network: Make, shape: tuple[int, ...]) -> None:
    with pytest.raises(chai.ChaiError, match=r"(?s)probe.*stride 2 does not divide"):
        network("Python", "xcustom_param { float_args: [2] }", shape)


@pytest.mark.parametrize("slope", [0.1, 0.0, 1.0, 2.0, -0.5])
def test_leaky_relu(network: Make, slope: float) -> None:
    x = numbers(2, 3, 5, 7)
    net = network("LeakyReLU", f"xcustom_param {{ float_args: [{slope}] }}", (2, 3, 5, 7))
    close(net.forward(x)["y"], elementwise.relu(x, slope))


def test_leaky_relu_in_place(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 5, 7] } } }\n'
        'layer { name: "power" type: "Power" bottom: "x" top: "y" power_param { shift: 0.5 } }\n'
        'layer { name: "leaky" type: "LeakyReLU" bottom: "y" top: "y" user_defined_layer: true }\n'
    )
    x = numbers(2, 3, 5, 7)
    net = chai.Net(tmp_path / "net.prototxt", device="float", keep="all")
    close(net.forward(x)["y"], elementwise.relu(x + np.float32(0.5), 0.1))
    assert np.array_equal(net.tops("power")[0], x + np.float32(0.5))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("softmax", [1, 0])
def test_region(network: Make, batch: int, softmax: int) -> None:
    x = numbers(batch, 2 * (4 + 1 + 3), 5, 7, low=-6, high=6)
    net = network("Region", f"xcustom_param {{ float_args: [3, 4, 2, {softmax}] }}", (1, 16, 5, 7))
    close(net.forward(x)["y"], yolo.region(x, 3, 4, 2, bool(softmax)))


def test_region_of_large_numbers(network: Make) -> None:
    x = np.full((1, 8, 2, 3), 200, np.float32)
    x[:, 5] = 500
    x[:, 1] = -200
    y = network("Region", "xcustom_param { float_args: [3, 4, 1] }", (1, 8, 2, 3)).forward(x)["y"]
    assert y[0, :, 0, 0].tolist() == [1, 0, 200, 200, 1, 1, 0, 0]


def test_region_refuses_channels_that_are_no_anchors(network: Make) -> None:
    with pytest.raises(chai.ChaiError, match=r"(?s)probe.*expected \(N, 5 \* \(4 \+ 1 \+ 3\), H, W\)"):
        network("Region", "xcustom_param { float_args: [3, 4, 5] }", (1, 16, 5, 7))


ANCHORS = [1.25, 0.75, 2.5, 3.0]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("confidence", "overlap", "keep"), [(0.2, 0.3, 40), (0.05, 0.6, 9), (0.2, 1.0, 200)])
def test_region_output(network: Make, batch: int, confidence: float, overlap: float, keep: int) -> None:
    x = yolo.region(numbers(batch, 16, 5, 7, low=-3, high=3), 3, 4, 2, True).astype(np.float32)
    fields = f"xcustom_param {{ float_args: [{confidence}, {overlap}, {keep}, {str(ANCHORS)[1:-1]}] }}"
    boxes = network("RegionOutput", fields, (1, 16, 5, 7)).forward(x)["y"]
    assert boxes.shape == (batch, 1, keep, 7)
    for image, wanted in zip(boxes[:, 0], yolo.detections(x, confidence, overlap, keep, ANCHORS)):
        assert wanted
        close(image[: len(wanted)], np.array(wanted))
        assert (image[len(wanted) :] == -1).all()


def test_region_output_drops_boxes_that_overlap(network: Make) -> None:
    """Two like boxes of one class in neighbouring cells; the second class has its own."""
    x = np.zeros((1, 7, 1, 2), np.float32)
    x[0, 0] = [0.9, 0.1]  # the centres nearly meet
    x[0, 4] = [0.5, 0.75]
    x[0, 5:, 0] = [[1, 1], [0, 0.5]]
    fields = "xcustom_param { float_args: [0.25, 0.5, 4, 1.0, 1.0] }"
    boxes = network("RegionOutput", fields, (1, 7, 1, 2)).forward(x)["y"][0, 0]
    assert boxes[:, :3].tolist() == [[0, 0, 0.75], [0, 1, 0.375], [-1, -1, -1], [-1, -1, -1]]
    assert np.allclose(boxes[:2, 3:], [0.3, -0.5, 0.8, 0.5])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("0.2", "0 numbers for anchors"),
        ("0.2, 0.3, 40, 1, 2, 3", "3 numbers"),
        ("0.2, 0.3, 40, 1, 1, 1, 1, 1, 1", "N, 3"),
    ],
)
def test_region_output_refuses(network: Make, values: str, words: str) -> None:
    with pytest.raises(chai.ChaiError, match=rf"(?s)probe.*{words}"):
        network("RegionOutput", f"xcustom_param {{ float_args: [{values}] }}", (1, 16, 5, 7))


# float_args, shape of the bottom, and of the parameters
EXAMPLES = {
    "gemm": ([11], (2, 5, 3, 7), [(11, 105), (11,)]),
    "LRN": ([3, 0.1, 0.75], (2, 6, 5, 7), []),
    "Python": ([2], (2, 8, 4, 6), []),
    "LeakyReLU": ([0.1], (2, 3, 5, 7), []),
    "Region": ([3, 4, 2], (2, 16, 5, 7), []),
    "RegionOutput": ([0.2, 0.3, 40, *ANCHORS], (2, 16, 5, 7), []),
}


@pytest.mark.parametrize("type", EXAMPLES)
def test_every_way_of_computing_it_agrees(type: str) -> None:
    pytest.importorskip("numba")
    values, shape, params = EXAMPLES[type]
    report = chai.check_custom(type, [shape], params=params, float_args=values)
    assert report.ok, str(report)
    assert len({row.way for row in report.rows}) == 3  # plain Python, compiled, numpy


@pytest.mark.parametrize("file", sorted(resource("custom").glob("*.py")), ids=lambda f: f.stem)
def test_the_example_at_the_head_of_a_file_is_a_layer_that_runs(tmp_path: Path, file: Path) -> None:
    head = ast.get_docstring(ast.parse(file.read_text())) or ""
    example = head[head.index("layer {") : head.index("\nArguments")]
    name, type, bottom = re.findall(r'(?:name|type|bottom): "(.*?)"', example)
    shape = HEADS[file.stem]
    (tmp_path / "net.prototxt").write_text(
        f'layer {{ name: "in" type: "Input" top: "{bottom}" input_param {{ shape {{ dim: {list(shape)} }} }} }}\n{example}'
    )
    weights = [numbers(1000, 8), numbers(1000)] if type == "gemm" else []
    write_caffemodel(tmp_path / "net.caffemodel", "net", [(name, type, weights)])
    net = chai.Net(tmp_path / "net.prototxt", tmp_path / "net.caffemodel", device="float")
    net.forward(numbers(*shape))
    assert [(s.name, s.type) for s in net.perf.custom] == [(name, type)]


HEADS = {  # shape of the bottom
    "gemm": (2, 8),
    "identity": (2, 3),
    "leaky_relu": (2, 3),
    "lrn": (2, 6, 5, 7),
    "passthrough": (2, 16, 52, 52),
    "region": (1, 125, 2, 3),
    "region_output": (1, 125, 2, 3),
    "reorg": (2, 8, 4, 6),
}


def test_a_python_layer_of_caffe_is_no_reorg(tmp_path: Path) -> None:
    """CHaiDNN calls its reorg Python; a layer of Caffe's that names its class is another one, unless it is flagged."""
    text = (
        'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: [1, 4, 6, 8] }} }} }}\n'
        'layer {{ name: "p" type: "Python" bottom: "data" top: "p" {} }}'
    )
    path = tmp_path / "net.prototxt"
    path.write_text(text.format('python_param { module: "rpn" layer: "ProposalLayer" }'))
    with pytest.raises(chai.UnknownLayer, match="it is ProposalLayer of the Python module 'rpn'"):
        chai.Net(path, device="float")
    path.write_text(text.format("user_defined_layer: true xcustom_param { float_args: 2 }"))
    assert chai.Net(path, device="float").shapes["p"] == (1, 16, 3, 4)
