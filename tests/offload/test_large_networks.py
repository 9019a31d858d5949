"""Large networks with Gaussian weights: no layer is on the host for its accumulator, and FC layers are int8.

kv260 has sums of 25 bits, pynq-z2 wide ones, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import chai
from chai import devices
from chai.codegen.compile import chain, footprint
from chai.graph import Graph, Layer
from chai.layers.batch_norm import BatchNorm
from chai.offload.plan import Plan
from chai.offload.planning import plan
from chai.offload.schedule import DeviceStep
from chai.passes.rewrite import rewrite
from chai.quantizer.walk import BatchState, in_float
from chai.tasks.arithmetic import Arithmetic
from chai.tasks.conv import Conv
from chai.tasks.work import Work
from chai.util.paths import resource
from tests.conftest import report

Array = np.ndarray


# -- networks that are not shipped


def vgg19() -> str:
    """VGG-16 with a fourth convolution in each of the last three stages."""
    text = resource("prototxt", "vgg16.prototxt").read_text()
    for stage, outputs in ((3, 256), (4, 512), (5, 512)):
        before, after = f"conv{stage}_3", f"conv{stage}_4"
        pool = f'layer {{ name: "pool{stage}" type: "Pooling" bottom: '
        assert pool in text
        more = f"""layer {{ name: "{after}" type: "Convolution" bottom: "{before}" top: "{after}"
            convolution_param {{ num_output: {outputs} kernel_size: 3 pad: 1 }} }}
            layer {{ name: "relu{stage}_4" type: "ReLU" bottom: "{after}" top: "{after}" }}
            """
        text = text.replace(f'{pool}"{before}"', f'{more}{pool}"{after}"')
    return text


def resnet18() -> str:
    """He et al., arXiv:1512.03385, table 1: stages of two blocks of two 3x3 convolutions, 64 to 512 channels."""
    lines = ['name: "ResNet-18" layer { name: "data" type: "Input" top: "data"']
    lines.append("input_param { shape { dim: 1 dim: 3 dim: 224 dim: 224 } } }")

    def layer(name: str, type: str, bottoms: str, top: str, fields: str = "") -> None:
        listed = " ".join(f'bottom: "{bottom}"' for bottom in bottoms.split())
        lines.append(f'layer {{ name: "{name}" type: "{type}" {listed} top: "{top}" {fields} }}')

    def conv(bottom: str, name: str, fields: str, relu: bool) -> None:
        layer(name, "Convolution", bottom, name, f"convolution_param {{ {fields} bias_term: false }}")
        layer(f"bn_{name}", "BatchNorm", name, name, "batch_norm_param { use_global_stats: true }")
        layer(f"scale_{name}", "Scale", name, name, "scale_param { bias_term: true }")
        if relu:
            layer(f"relu_{name}", "ReLU", name, name)

    conv("data", "conv1", "num_output: 64 kernel_size: 7 pad: 3 stride: 2", True)
    layer("pool1", "Pooling", "conv1", "pool1", "pooling_param { pool: MAX kernel_size: 3 stride: 2 }")
    bottom, three = "pool1", "kernel_size: 3 pad: 1"
    for stage, outputs in enumerate((64, 128, 256, 512), 2):
        for block in "ab":
            name, stride = f"res{stage}{block}", 1 + (stage > 2 and block == "a")
            conv(bottom, f"{name}_2a", f"num_output: {outputs} {three} stride: {stride}", True)
            conv(f"{name}_2a", f"{name}_2b", f"num_output: {outputs} {three}", False)
            if stride == 2:
                conv(bottom, f"{name}_1", f"num_output: {outputs} kernel_size: 1 stride: 2", False)
                bottom = f"{name}_1"
            layer(name, "Eltwise", f"{bottom} {name}_2b", name)
            layer(f"{name}_relu", "ReLU", name, name)
            bottom = name
    layer("pool5", "Pooling", bottom, "pool5", "pooling_param { pool: AVE global_pooling: true }")
    layer("fc1000", "InnerProduct", "pool5", "fc1000", "inner_product_param { num_output: 1000 }")
    layer("prob", "Softmax", "fc1000", "prob")
    return "\n".join(lines)


WRITTEN = {"vgg19": vgg19, "resnet18": resnet18}


def path_of(name: str, folder: Path) -> str:
    """A shipped network's name, or the path of one that is written here."""
    if name not in WRITTEN:
        return name
    path = folder / f"{name}.prototxt"
    path.write_text(WRITTEN[name]())
    return str(path)


# -- plans


def gaussian(graph: Graph) -> None:
    """Seeded weights, statistics that change nothing."""
    rng = np.random.default_rng(0)
    for layer in graph.layers:
        for i, blob in enumerate(layer.blobs):
            if blob.ndim > 1:
                blob[...] = rng.standard_normal(blob.shape, np.float32) * np.float32((2 / blob[0].size) ** 0.5)
            else:
                blob[...] = float(i > 0 if isinstance(layer, BatchNorm) else i == 0 and layer.per_channel)


@contextmanager
def planned(path: str, scheme: str, overlay: str = "kv260") -> Iterator[tuple[Plan, dict[str, Array]]]:
    """The plan of a network with formats for the values of one random input, and that input."""
    with chai.Net(path, device="null", scheme=scheme, overlay=overlay) as net:
        gaussian(net.graph)
        (name,) = net.inputs
        feeds = {name: np.random.default_rng(1).standard_normal(net.shapes[name]).astype(np.float32) * 60}
        net.calibrate(**feeds)
        about = net.offload.plan
        yield plan(rewrite(net.graph), net.offload.shapes, about.overlay, {}, about.formats), feeds


# -- how good the outputs are


class Quality(NamedTuple):
    """SQNR in dB of a layer's output for an input in codes: of all channels, and of those whose steps are not coarser
    with coarser steps elsewhere and without."""

    whole: float
    others: float
    without: float


def decibels(wanted: Array, values: Array) -> float:
    return float(10 * np.log10((wanted.astype(np.float64) ** 2).sum() / ((wanted - values) ** 2).sum(dtype=np.float64)))


def qualities(network_plan: Plan, feeds: dict[str, Array]) -> Iterator[tuple[str, Quality]]:
    """Of each layer with coarser steps, alone: its bottom is that of the float network."""
    for layer, bottoms, tops in in_float(network_plan.graph, feeds):
        if layer.name in network_plan.coarser:
            (bottom,) = layer.bottoms
            state = BatchState(network_plan.shapes, network_plan.formats, {bottom: bottoms[0]})
            (fine, own), (coarse, steps) = (run(network_plan, layer, state, trained) for trained in (False, True))
            same = steps == own
            assert network_plan.coarser[layer.name].channels == np.count_nonzero(~same)
            wanted = tops[0].reshape(coarse.shape)
            others = [decibels(wanted[:, same], output[:, same]) if same.any() else 99.0 for output in (coarse, fine)]
            yield layer.name, Quality(decibels(wanted, coarse), *others)


def run(network_plan: Plan, layer: Layer, state: BatchState, trained: bool) -> tuple[Array, Array]:
    """A layer's top in float32, and the steps of its weights (M,); as if all sums fitted unless ``trained``."""
    (bottom,), (top,) = layer.bottoms, layer.tops
    target = Arithmetic(network_plan.overlay, network_plan.formats, state.device_shapes, trained)
    tasks = layer.lower(target)
    blobs = {bottom: state.code(bottom)}
    devices.open("emulator").compile(Work(network_plan.overlay, tasks, state.device_shapes)).run(blobs)
    sums = target.weights(layer.weight_rows, None, layer.precision, bottom, top)
    return network_plan.formats[top].dequantize(blobs[top]), sums.steps


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("name", ["alexnet", "vgg16", "vgg19", "resnet18", "resnet50", "yolov2_tiny"])
def test_no_layer_is_lost_to_the_accumulator(tmp_path: Path, name: str, scheme: str) -> None:
    with planned(path_of(name, tmp_path), scheme) as (network_plan, feeds):
        assert not any("a sum could reach" in reason for reason in network_plan.partition.reasons.values())
        assert not network_plan.open_sums
        quality_by_layer = dict(qualities(network_plan, feeds))
    assert quality_by_layer.keys() == network_plan.coarser.keys()
    for layer, each in quality_by_layer.items():
        report(
            f"{name}, {scheme}: {layer} ({network_plan.coarser[layer]}) {each.whole:.1f} dB, other channels {each.others:.2f} dB "
            f"instead of {each.without:.2f}"
        )
    least = 25 if scheme == "Xilinx" else 20
    assert min((each.whole for each in quality_by_layer.values()), default=99) >= least
    assert max((abs(each.others - each.without) for each in quality_by_layer.values()), default=0) <= 0.1


@pytest.mark.slow
def test_vgg16_is_small() -> None:
    with planned("vgg16", "Xilinx", "pynq-z2") as (network_plan, _):
        assert not network_plan.coarser
        steps = [s for s in network_plan.schedule.steps if isinstance(s, DeviceStep)]
        views, shapes = network_plan.schedule.views, network_plan.device_shapes
        wide = {task.origin[0] for s in steps for task in s.tasks if isinstance(task, Conv) and task.wide}
        assert {"conv4_2", "conv4_3", "conv5_1", "conv5_2", "conv5_3", "fc6"} <= wide  # of 4,608 and 25,088 products
        chains = [chain(s.work(network_plan.overlay, shapes, views)) for s in steps]
        (scores,) = (x for x in network_plan.graph.layers if x.name == "fc8")
        assert {network_plan.partition.engine(name) for name in ("fc6", "fc7")} == {"fpga"}
        assert network_plan.partition.engine("fc8") == "host"
        assert footprint(chains).constants + sum(blob.nbytes for blob in scores.blobs) < 153e6
