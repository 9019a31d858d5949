"""The shipped networks: sizes, multiply-accumulates, the overlay's part of them, and that they run.

Multiply-accumulates are counted by hand here, from the tables of the papers; names and parameters of layers are compared
with the published files where the collection of prototxts has them.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay
from chai.graph import Graph, Layer
from chai.offload.partition import partition
from chai.passes.infer_shapes import infer_shapes
from chai.passes.rewrite import rewrite
from chai.util.paths import resource
from chai.zoo import networks
from chai.zoo.card_file import read_card
from chai.zoo.locate import read_graph
from tests.conftest import need_models, report

TOOL = resource("tools", "networks.py")
Conv = tuple[int, int, int, int]  # kernel, channels in (per group), channels out, height = width of the output


def resnet50() -> Iterator[Conv]:
    yield 7, 3, 64, 112
    channels = 64
    for blocks, width, side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            yield from ((1, channels, width, side), (3, width, width, side), (1, width, 4 * width, side))
            if block == 0:
                yield 1, channels, 4 * width, side
            channels = 4 * width
    yield 1, 2048, 1000, 1


def vgg(side: int) -> Iterator[Conv]:
    channels = 3
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            yield 3, channels, outputs, side
            channels = outputs
        side = -(-side // 2)


def vgg16() -> Iterator[Conv]:
    yield from vgg(224)
    yield from ((7, 512, 4096, 1), (1, 4096, 4096, 1), (1, 4096, 1000, 1))


def mobile(side: int) -> Iterator[Conv]:
    """conv1 and the 13 depthwise separable convolutions."""
    yield 3, 3, 32, side
    table = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2)]
    for channels, outputs, stride in [*table, *[(512, 512, 1)] * 5, (512, 1024, 2), (1024, 1024, 1)]:
        side = -(-side // stride)
        yield 3, 1, channels, side
        yield 1, channels, outputs, side


def mobilenet_v1() -> Iterator[Conv]:
    yield from mobile(112)
    yield 1, 1024, 1000, 1


def mobilenet_ssd() -> Iterator[Conv]:
    yield from mobile(150)
    yield from ((1, 1024, 256, 10), (3, 256, 512, 5), (1, 512, 128, 5), (3, 128, 256, 3))
    yield from ((1, 256, 128, 3), (3, 128, 256, 2), (1, 256, 64, 2), (3, 64, 128, 1))
    heads = ((512, 3, 19), (1024, 6, 10), (512, 6, 5), (256, 6, 3), (256, 6, 2), (128, 6, 1))
    yield from ((1, channels, boxes * (4 + 21), side) for channels, boxes, side in heads)


def vgg_ssd300() -> Iterator[Conv]:
    yield from vgg(300)
    yield from ((3, 512, 1024, 19), (1, 1024, 1024, 19), (1, 1024, 256, 19), (3, 256, 512, 10), (1, 512, 128, 10))
    yield from ((3, 128, 256, 5), (1, 256, 128, 5), (3, 128, 256, 3), (1, 256, 128, 3), (3, 128, 256, 1))
    heads = ((512, 4, 38), (1024, 6, 19), (512, 6, 10), (256, 6, 5), (256, 4, 3), (256, 4, 1))
    yield from ((3, channels, boxes * (4 + 21), side) for channels, boxes, side in heads)


def fcn_alexnet() -> Iterator[Conv]:
    yield from ((11, 3, 96, 173), (5, 48, 256, 86), (3, 256, 384, 43), (3, 192, 384, 43), (3, 192, 256, 43))
    yield from ((6, 256, 4096, 16), (1, 4096, 4096, 16), (1, 4096, 21, 16))
    yield 63, 21, 21, 16  # the deconvolution: every input meets every weight


def yolov2_tiny() -> Iterator[Conv]:
    yield from ((3, 3, 16, 416), (3, 16, 32, 208), (3, 32, 64, 104), (3, 64, 128, 52), (3, 128, 256, 26))
    yield from ((3, 256, 512, 13), (3, 512, 1024, 13), (3, 1024, 1024, 13), (1, 1024, 125, 13))


@dataclasses.dataclass(frozen=True)
class Expected:
    convolutions: Callable[[], Iterator[Conv]]
    outputs: dict[str, tuple[int, ...]]
    host: dict[str, int]  # layers that pynq-z2 has no unit for, whatever their weights
    published: str = ""  # the file's name in the collection of prototxts
    anchor: int = 0  # multiply-accumulates that reference/overlay.md names


HEADS = {"Permute": 12, "Flatten": 13, "PriorBox": 6, "Concat": 3, "Reshape": 1, "Softmax": 1, "DetectionOutput": 1}
FOUND = {"detection_out": (1, 1, 1, 7)}  # the 1 is the rule for a size known at run time
CLASSES = {"prob": (1, 1000)}
NETWORKS = {
    "resnet50": Expected(resnet50, CLASSES, {"InnerProduct": 1, "Softmax": 1}, "6a80711a359a", 3_857_973_248),
    "vgg16": Expected(vgg16, CLASSES, {"InnerProduct": 1, "Softmax": 1}, "ee42145a2f6a", 15_470_264_320),
    "mobilenet_v1": Expected(mobilenet_v1, {"prob": (1, 1000, 1, 1)}, {"Softmax": 1}, "f8c906f5175e", 568_740_352),
    "mobilenet_ssd": Expected(mobilenet_ssd, FOUND, HEADS, "f4b230bb76a8"),
    "vgg_ssd300": Expected(vgg_ssd300, FOUND, {**HEADS, "Normalize": 1}, "b2e7d8686d68"),
    "fcn_alexnet": Expected(  # conv1 pads by 100
        fcn_alexnet, {"score": (1, 21, 500, 500)}, {"Convolution": 1, "Deconvolution": 1, "Crop": 1}
    ),
    "yolov2_tiny": Expected(yolov2_tiny, {"conv9": (1, 125, 13, 13)}, {}),
}


def graph_of(name: str) -> Graph:
    path = networks.prototxt(name)
    assert path is not None
    return read_graph(path)


def macs(layer: Layer, shapes: dict[str, tuple[int, ...]]) -> int:
    return layer.macs(tuple(shapes[b] for b in layer.bottoms), tuple(shapes[t] for t in layer.tops))


def test_every_network_has_a_card_and_a_line_in_the_readme() -> None:
    readme = resource("prototxt", "README.md").read_text()
    for name in networks.names():
        path = networks.prototxt(name)
        assert path is not None
        assert read_card(path).title
        assert f"`{name}`" in readme


def test_the_written_networks_are_what_their_tool_writes() -> None:
    tool = resource("tools", "networks.py")
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", NETWORKS)
def test_shapes_and_macs_are_those_counted_by_hand(name: str) -> None:
    wanted = NETWORKS[name]
    graph = graph_of(name)
    shapes = infer_shapes(graph)
    assert {name: shapes[graph.latest[name]] for name in graph.outputs} == wanted.outputs
    counted = sum(k * k * inputs * outputs * side * side for k, inputs, outputs, side in wanted.convolutions())
    assert wanted.anchor in (0, counted)
    assert sum(macs(layer, shapes) for layer in graph.layers) == counted
    readme = resource("prototxt", "README.md").read_text()
    (line,) = [row for row in readme.splitlines() if row.startswith(f"| `{name}`")]
    assert line.split("|")[2:5] == [
        f" {'x'.join(map(str, shapes['data']))} ",
        f" {len(graph.layers) - 1} ",  # without Input
        f" {counted:,} ",
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_what_stays_on_the_host(name: str) -> None:
    graph = graph_of(name)
    shapes = infer_shapes(graph)
    for layer in graph.layers:  # ones: what weights are cannot matter here, only that a pass may fold them
        sizes = layer.weight_shapes(*(shapes[b] for b in layer.bottoms))
        layer.blobs = [np.broadcast_to(np.float32(1), size) for size in sizes]
    rewritten = rewrite(graph)
    parts = partition(rewritten, shapes, overlay.load(), {}, {})
    assert Counter(layer.type for layer in rewritten.layers if layer.name in parts.reasons) == NETWORKS[name].host
    assert not {layer.type for layer in rewritten.layers} & {"BatchNorm", "Dropout"}  # taken in, dropped


def alike(params: Any) -> Any:
    """Parameters with defaults spelled out and without fillers, which published weights make moot."""
    if not dataclasses.is_dataclass(params):
        return params
    values = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
    neutral = {"pad": (0,), "stride": (1,), "dilation": (1,)}
    return {k: v or neutral.get(k, v) for k, v in values.items() if "filler" not in k}


@pytest.mark.parametrize("name", [n for n, wanted in NETWORKS.items() if wanted.published])
def test_layers_are_those_of_the_published_file(name: str, tmp_path: Path) -> None:
    file = f"prototxt_corpus/{NETWORKS[name].published}.prototxt"
    with tarfile.open(need_models() / "prototxt_corpus.tar.xz") as tar:
        member = tar.extractfile(file)
        assert member is not None
        (tmp_path / "published.prototxt").write_bytes(member.read())
    ours, theirs = graph_of(name).layers, read_graph(tmp_path / "published.prototxt").layers
    own, wanted = ({layer.name: layer for layer in layers if layer.type != "Input"} for layers in (ours, theirs))
    assert set(own) == set(wanted)
    for key, layer in wanted.items():
        assert (own[key].type, own[key].bottoms, own[key].tops) == (layer.type, layer.bottoms, layer.tops)
        if key != "detection_out":  # its thresholds are everybody's own choice
            assert alike(own[key].params) == alike(layer.params), key


def test_the_pool_of_stride_1_is_darknets() -> None:
    net = chai.Net("yolov2_tiny", device="float", start_layer="pool6/padded", end_layer="pool6")
    (blob,) = net.inputs
    x = np.random.default_rng(0).standard_normal(net.shapes[blob]).astype(np.float32)
    pooled = net.forward(x)["pool6"]
    assert pooled.shape == x.shape
    for i, j in np.ndindex(13, 13):
        assert np.array_equal(pooled[0, :, i, j], x[0, :, i : i + 2, j : j + 2].max((1, 2)))


def noise(net: chai.Net) -> Any:
    return (np.random.default_rng(0).standard_normal(net.shapes["data"]) * 40).astype(np.float32)


QUICK = ("resnet50", "mobilenet_v1", "mobilenet_ssd", "yolov2_tiny")
MARKED = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NETWORKS]
# a blob before the classifier or the boxes, where differences of a bit do not become others
LOOK_AT = {"resnet50": "pool5", "vgg16": "fc8", "mobilenet_v1": "fc7", "mobilenet_ssd": "mbox_loc"}
LOOK_AT |= {"vgg_ssd300": "mbox_loc", "fcn_alexnet": "score", "yolov2_tiny": "conv9"}


@pytest.mark.parametrize("name", MARKED)
def test_random_weights_run_in_float_and_on_the_emulator(name: str) -> None:
    blob = LOOK_AT[name]
    exact = chai.Net(name, device="float", keep=[blob])
    data = noise(exact)
    outputs = exact.forward(data=data)
    for key, shape in NETWORKS[name].outputs.items():
        assert outputs[key].shape[-1] == shape[-1] and outputs[key].shape[0] == 1
        assert np.isfinite(outputs[key]).all()
    wanted = exact.blobs[blob]
    exact.close()
    assert np.ptp(wanted) > 0
    net = chai.Net(name, device="emulator", keep=[blob])
    net.forward(data=data)
    error = float(((net.blobs[blob] - wanted) ** 2).sum())
    decibel = 10 * np.log10(float(((wanted - wanted.mean()) ** 2).sum()) / error)
    report(f"{name}: {blob} has {decibel:.1f} dB in 8 bits on the emulator, random weights")
    assert "fpga:Convolution" in net.schedule.engines()
    assert decibel > 15
