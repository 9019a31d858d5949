"""Networks as ONNX and for ncnn: read by other engines, which compute the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from chai.errors import UsageError
from chai.evaluate.bench.engines import Subject, opened, sets
from chai.fixed import Format
from chai.passes.infer_shapes import infer_shapes
from chai.passes.rewrite import rewrite
from tests.passes.common import AFFINE, GLOBAL, network
from tools.bench.engines import ENGINES
from tools.bench.ncnn import ncnn
from tools.bench.onnx import onnx

SHAPE = (2, 3, 13, 17)
LINES = f"""
a Convolution data -> a : convolution_param {{ num_output: 6 kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0 }}
b BatchNorm a -> a : {GLOBAL}
c Scale a -> a : {AFFINE}
d ReLU a -> a : relu_param {{ negative_slope: 0.125 }}
e Convolution a -> e : convolution_param {{ num_output: 6 kernel_size: 3 pad: 2 dilation: 2 group: 3 bias_term: false }}
f Eltwise a e -> f : eltwise_param {{ coeff: 2 coeff: -0.5 }}
g ReLU f -> g
h Pooling g -> h : pooling_param {{ pool: MAX kernel_size: 3 stride: 2 }}
i LRN h -> i : lrn_param {{ local_size: 3 alpha: 0.5 beta: 0.75 k: 2 }}
j Pooling i -> j : pooling_param {{ pool: AVE kernel_size: 3 stride: 1 pad: 1 }}
o Convolution j -> o : convolution_param {{ num_output: 10 kernel_size: 1 }}
p ReLU o -> o : relu_param {{ relu6: true }}
q Convolution o -> q : convolution_param {{ num_output: 10 kernel_size: 3 pad: 1 group: 10 }}
k Concat i q -> k
l Pooling k -> l : pooling_param {{ pool: MAX kernel_size: 2 stride: 2 pad: 1 }}
m InnerProduct l -> m : inner_product_param {{ num_output: 11 }}
n Softmax m -> n
"""
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def test_opencv_computes_the_same_from_onnx(tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2", reason='pip install "chai-fpga[bench]"')
    lines = LINES.replace("AVE kernel_size: 3 stride: 1 pad: 1", "AVE kernel_size: 1")  # it ignores count_include_pad
    net = network(tmp_path, lines, SHAPE)
    wanted = net.forward(X)["n"]
    graph = rewrite(net.graph)
    assert [layer.type for layer in graph.layers].count("BatchNorm") == 0  # folded, so that engines see what chai runs
    model = np.frombuffer(onnx(graph, infer_shapes(graph)), np.uint8)
    peer = cv2.dnn.readNetFromONNX(model)
    peer.setInput(X, "data")
    assert np.abs(peer.forward("n") - wanted).max() < 1e-5
    assert wanted.std() > 0.01


@pytest.mark.parametrize("module", ["onnxruntime", "openvino", "nncf", "ncnn", "MNN"])
def test_engines_that_read_no_caffe_compute_the_same(tmp_path: Path, module: str) -> None:
    """And the instructions that they tell of are ones that the processor has."""
    pytest.importorskip(module, reason='pip install "chai-fpga[peers]"')
    net = network(tmp_path, LINES, SHAPE)
    wanted = net.forward(X)["n"]
    names = {"nncf": ["openvino nncf int8"], "MNN": ["mnn"]}.get(module, [module, f"{module} int8"])
    for peer in opened(names, ENGINES, Subject(net.graph, ("", ""), {"data": X}, 1), tmp_path):
        assert not isinstance(peer.run, str), peer.run
        (value,) = peer.run()
        assert value.shape == wanted.shape
        assert np.abs(value - wanted).max() < (0.1 if "int8" in peer.name else 1e-5)
        used = sets(ENGINES[peer.name].instructions(peer.run))
        assert bool(used) == (module != "MNN")
        flags = Path("/proc/cpuinfo").read_text().replace("asimd", "neon asimd")
        assert all(name in flags for name in used)


def test_files_of_ncnn_are_whole(tmp_path: Path) -> None:
    """Each blob is written before its only reader; the weights have the size that the layers' parameters say."""
    net = network(tmp_path, LINES, SHAPE)
    graph = rewrite(net.graph)
    shapes = infer_shapes(graph)
    formats = {blob: Format("Xilinx", 8, 1.0) for blob in shapes if blob not in graph.outputs}
    for codes in (None, formats):
        files = ncnn(graph, shapes, codes)
        magic, counts, *lines = files.param.splitlines()
        assert magic == "7767517"
        unread: set[str] = set()
        written, size, kinds = 0, 0, []
        for line in lines:
            kind, _, reads, writes, *words = line.split()
            inputs, outputs = words[: int(reads)], words[int(reads) : int(reads) + int(writes)]
            numbers = dict(word.split("=") for word in words[int(reads) + int(writes) :])
            assert unread >= {*inputs} and not unread & {*outputs}, line
            unread = unread - {*inputs} | {*outputs}
            written += len(outputs)
            kinds.append(kind)
            size += stored(kind, numbers)
        assert counts == f"{len(lines)} {written}"
        assert unread == {files.names["n"]}
        assert len(files.weights) == size
        assert (kinds.count("Convolution"), kinds.count("ConvolutionDepthWise"), kinds.count("Split")) == (2, 2, 2)
        assert ("8=101" in files.param) == bool(codes)  # q alone reads p: it is stored as codes


def test_names_that_a_writer_adds_are_no_names_of_the_network(tmp_path: Path) -> None:
    """Each name that is added to a network is then the name of one of its layers and blobs, and no name is there twice."""
    lines = """
{0} Convolution data -> {0} : convolution_param {{ num_output: 5 kernel_size: 3 }}
{1} Pooling {0} -> {1} : pooling_param {{ pool: MAX kernel_size: 3 pad: 1 }}
{2} Eltwise {0} {1} {0} -> {2} : eltwise_param {{ coeff: 2 coeff: 3 coeff: 4 }}
{3} ReLU {2} -> {3} : relu_param {{ relu6: true }}
{4} Scale {1} -> {4} : scale_param {{ bias_term: true }}
{5} Eltwise {3} {4} -> {5}
{6} InnerProduct {5} -> {6} : inner_product_param {{ num_output: 7 }}
"""

    def names(*network_names: str) -> tuple[list[str], list[str]]:
        graph = rewrite(network(tmp_path, lines.format(*network_names), SHAPE).graph)
        shapes = infer_shapes(graph)
        formats = {blob: Format("Xilinx", 8, 1.0) for blob in shapes if blob not in graph.outputs}
        words = [line.split() for line in ncnn(graph, shapes).param.splitlines()[2:]]
        model = next(value for number, value in fields(onnx(graph, shapes, formats)) if number == 7)
        parts = [(number, dict(fields(part))) for number, part in fields(model) if number != 2]
        named = [part[{1: 2, 5: 8, 11: 1}[number]] for number, part in parts if number != 12]  # node, tensor, input
        outputs = [name for _, _, reads, writes, *rest in words for name in rest[int(reads) :][: int(writes)]]
        return [name.decode() for name in named], [f"{kind} {name}" for kind, name, *_ in words] + outputs

    plain = [*"abcdefg"]  # and data
    added = [name for file in names(*plain) for name in file if name not in (*plain, "data") and " " not in name]
    added = [*dict.fromkeys(added)]
    assert {"d/before", "c/scaled_1", "g/weights", "a/rounded", "a/0"} <= {*added}
    for i in range(0, len(added), len(plain)):
        for file in names(*(added[i:] + plain)[: len(plain)]):
            assert len(file) == len({*file})


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Fields of a protobuf message: number and bytes of those that have a length."""

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while data[at] > 127:
            value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        at += 1
        return value | data[at - 1] << shift

    at = 0
    while at < len(data):
        tag = varint()
        if tag & 7 == 5:
            at += 4
        elif tag & 7 == 0:
            varint()
        else:
            size = varint()
            at += size
            yield tag >> 3, data[at - size : at]


def stored(kind: str, numbers: dict[str, str]) -> int:
    """Bytes that ncnn reads for a layer: the flag and the weights in whole words, the bias, and the scales of codes."""
    if kind not in ("Convolution", "ConvolutionDepthWise", "InnerProduct"):
        return 0
    first = 1 if kind == "InnerProduct" else 5
    outputs, bias, count, codes = (int(numbers.get(str(i), 0)) for i in (0, first, first + 1, 8))
    scales = int(numbers["7"]) if kind == "ConvolutionDepthWise" else outputs
    return (
        4
        + (4 * -(-count // 4) if codes else 4 * count)
        + 4 * (outputs * bias + bool(codes) * (scales + 1) + (codes > 100))
    )


def test_what_cannot_be_converted_is_named(tmp_path: Path) -> None:
    net = network(tmp_path, "a Sigmoid data -> a\nb Softmax a -> b", SHAPE)
    for write, form in ((onnx, "as ONNX"), (ncnn, "for ncnn")):
        with pytest.raises(UsageError, match=f"layer 'a': Sigmoid is not written {form}"):
            write(net.graph, infer_shapes(net.graph))
