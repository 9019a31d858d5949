"""CHaiDNN-v2's own numbers, code by code: layers of a prototxt on its overlays, from float weights and precision_param."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay
from chai.chaidnn_v2.conv import ChaidnnConv, chunks
from chai.chaidnn_v2.pool import ChaidnnPool
from chai.chaidnn_v2.registers import Converted
from chai.fixed import Format, Requantization
from chai.kernels.codes import pack, unpack
from chai.offload.schedule import DeviceStep, HostStep
from chai.tasks import Task
from chai.tasks.arithmetic import arithmetic
from chai.tasks.eltwise import Eltwise
from chai.tasks.window import Window
from tests.tasks.common import Array, emulated
from tests.vectors import VECTORS as FOLDER, Vector

Facts = dict[str, Any]
Arrays = Mapping[str, Array]
FULL, DIET = "chaidnn-zcu102", "chaidnn-diet"
VECTORS = {"conv": 60, "pool": 39, "pack_unpack": 8, "crelu": 5, "eltwise": 5, "l2norm": 2, "deconv_argmax": 2}
VECTORS |= {"softmax": 1, "batchnorm_scale": 1}
LIMITED = {"batchnorm_scale", "deconv_argmax"}  # units that DietChai has not


def precision(facts: dict[str, Any]) -> str:
    """The precision_param of a layer in one width, without weights."""
    if facts["quant"]:
        ends = "th_layer_in: 4.03 th_layer_out: 4.03"
    else:
        ends = f"fl_layer_in: {facts['fl_in']} fl_layer_out: {facts['fl_out']}"
    bits = f"bw_layer_in: {facts['bw']} bw_layer_out: {facts['bw']}"
    return f'precision_param {{ quant_type: "{("DynamicFixed", "Xilinx")[facts["quant"]]}" {bits} {ends} }}'


def network(folder: Path, name: str, text: str, weights: dict[str, list[Array]], *shapes: tuple[int, ...]) -> chai.Net:
    """A network with inputs x0, x1 ... on an overlay."""
    path = folder / "net.prototxt"
    sizes = [" ".join(f"dim: {n}" for n in shape) for shape in shapes]
    path.write_text(
        "".join(
            f'layer {{ name: "x{i}" type: "Input" top: "x{i}" input_param {{ shape {{ {size} }} }} }}\n'
            for i, size in enumerate(sizes)
        )
        + text
    )
    net = chai.Net(path, overlay=name)
    for layer, arrays in weights.items():
        for blob, values in zip(net.params[layer], arrays, strict=True):
            blob[...] = values
    return net


def tasks(folder: Path, name: str, text: str, weights: dict[str, list[Array]], *shapes: tuple[int, ...]) -> list[Task]:
    """The Tasks of such a network, all of whose layers run on the overlay."""
    net = network(folder, name, text, weights, *shapes)
    assert not net.partition.reasons
    net.plan()
    return [task for step in net.schedule.steps if isinstance(step, DeviceStep) for task in step.tasks]


def run(task: Task, y: Array, *inputs: Array) -> Array:
    """The codes of a Task by the emulator, which are those of its definition."""
    codes = emulated([task], dict(zip(task.inputs, inputs)), {task.output: y.shape})[task.output]
    assert np.array_equal(codes, task.define(*inputs))
    return codes


def convolution(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    x, y = arrays["x"], arrays["y"]
    sizes = f"num_output: {facts['M']} kernel_size: {facts['F']} stride: {facts['stride']} pad: {facts['pad']}"
    text = (
        'layer { name: "y" type: "Convolution" bottom: "x0" top: "y" '
        f"convolution_param {{ {sizes} dilation: {facts['dil']} group: {facts['group']} }} "
        f"{facts['precision_param']} }}\n"
    )
    if facts["relu"]:
        text += 'layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }\n'
    (task,) = tasks(folder, name, text, {"y": [arrays["w"], arrays["b"]]}, x.shape)
    assert isinstance(task, ChaidnnConv)
    assert np.array_equal(task.weights, arrays["qw"])
    xilinx = bool(facts["quant"])
    assert np.array_equal(task.bias, arrays["qb"].astype(np.int64) << (14 if xilinx else 0))
    assert task.requantization.shift == facts["shift"]
    if xilinx:
        assert np.array_equal(task.requantization.multiplier.ravel(), arrays["scale"])
    assert len(chunks(x.shape[1] // facts["group"], facts["F"] ** 2)) == facts["straddle"]
    assert np.array_equal(run(task, y, x), y)


def crelu(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    """A convolution, a Power that negates, a Concat of both and a ReLU behind it: from floats to floats."""
    x, y, scheme = arrays["x"], arrays["y"], ("DynamicFixed", "Xilinx")[facts["quant"]]
    ends = [(side, facts[("th_" if facts["quant"] else "fl_") + side]) for side in ("in", "out")]
    stated = " ".join(
        f"bw_layer_{side}: {facts['bw_' + side]} {'th' if facts['quant'] else 'fl'}_layer_{side}: {value}"
        for side, value in ends
    )
    if facts["quant"]:
        weights = " ".join(f"th_params: {threshold}" for threshold in arrays["th_params"])
    else:
        weights = f"fl_params: {facts['fl_wt']}"
    text = (
        'layer { name: "c" type: "Convolution" bottom: "x0" top: "c" convolution_param '
        f"{{ num_output: {facts['M']} kernel_size: {facts['F']} stride: {facts['stride']} pad: {facts['pad']} }} "
        f'precision_param {{ quant_type: "{scheme}" bw_params: {facts["bw_wt"]} {stated} {weights} }} }}\n'
        'layer { name: "n" type: "Power" bottom: "c" top: "n" power_param { scale: -1 } }\n'
        'layer { name: "y" type: "Concat" bottom: "c" bottom: "n" top: "y" }\n'
        'layer { name: "r" type: "ReLU" bottom: "y" top: "y" }\n'
    )
    net = network(folder, name, text, {"c": [arrays["w"], arrays["b"]]}, x.shape)
    read, written = (Format(scheme, facts["bw_" + side], value) for side, value in ends)
    assert np.array_equal(net.forward(unpack(x, read))["y"], unpack(y, written))
    assert {*net.partition.reasons} == {"r"}


def pool(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    """In the unit of the vector; averages are in that of convolutions, and where the pooling unit has one, in that Task."""
    x, y = arrays["x"], arrays["y"]
    standalone, average = facts["kernel"].startswith("standalone"), facts["type"] == "AVE"
    if standalone and average:  # CHaiDNN's graph never asks for it: the multiplier of DynamicFixed in both schemes
        sides = Window((facts["k"],) * 2, (facts["stride"],) * 2, (facts["pad"],) * 2)
        r = Requantization(np.array(256 // facts["k"] ** 2), facts["fl_in"] + 8 - facts["fl_out"], -128, 127)
        task: Task = ChaidnnPool(("x",), "y", ("y",), sides, y.shape[2:], r, standalone=True)
    else:
        text = (
            'layer { name: "y" type: "Pooling" bottom: "x0" top: "y" pooling_param { '
            f"pool: {facts['type']} kernel_size: {facts['k']} stride: {facts['stride']} pad: {facts['pad']} }} "
            f"{precision(facts)} }}\n"
        )
        (task,) = tasks(folder, name if average else FULL if standalone else DIET, text, {}, x.shape)
        assert isinstance(task, ChaidnnPool) and task.standalone == standalone
    assert np.array_equal(run(task, y, x), y)


def eltwise(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    """Also of the software that takes the place of the unit."""
    a, b, y = arrays["a"], arrays["b"], arrays["y"]
    text = (
        f'layer {{ name: "y" type: "Eltwise" bottom: "x0" bottom: "x1" top: "y" {precision({**facts, "quant": 1})} }}\n'
    )
    if facts["relu"]:
        text += 'layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }\n'
    (task,) = tasks(folder, name, text, {}, a.shape, b.shape)
    assert isinstance(task, Eltwise)
    assert np.array_equal(run(task, y, a, b), y)


def batchnorm_scale(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    x, y = arrays["a"], arrays["y"]
    tables = f"scale_gamma_by_std_fl: {facts['gamma_by_std_fl']} scale_beta_fl: {facts['beta_fl']} }}"
    stated = precision({**facts, "quant": 0})
    text = (
        f'layer {{ name: "b" type: "BatchNorm" bottom: "x0" top: "b" {stated} }}\n'
        f'layer {{ name: "y" type: "Scale" bottom: "b" top: "y" scale_param {{ bias_term: true }} '
        f"{stated.removesuffix('}')} {tables} }}\n"
    )
    weights = {"b": [arrays["mean"], arrays["var"], np.ones(1)], "y": [arrays["gamma"], arrays["beta"]]}
    (task,) = tasks(folder, name, text, weights, x.shape)
    assert task.kind == "affine"
    assert np.array_equal(run(task, y, x), y)


def softmax(_: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    x, y = arrays["x"].T, arrays["y"].T  # in CHaiDNN's buffers classes come first
    net = network(folder, name, 'layer { name: "y" type: "Softmax" bottom: "x0" top: "y" }\n', {}, x.shape)
    assert np.array_equal(net.forward(x)["y"], y)


def l2norm(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    """Behind a convolution that copies its input, since it reads and writes codes."""
    x, y, gamma = arrays["x"], arrays["y"], arrays["gamma"]
    read, written = facts["fl_in"], facts["fl_out"]
    bits = 'quant_type: "DynamicFixed" bw_layer_in: 8 bw_layer_out: 8'
    text, weights = copying(x.shape[1], read)
    text += (
        'layer { name: "y" type: "Normalize" bottom: "c" top: "y" norm_param { across_spatial: false channel_shared: false } '
        f"precision_param {{ {bits} fl_layer_in: {read} fl_layer_out: {written} }} }}\n"
    )
    net = network(folder, name, text, {"c": weights, "y": [gamma]}, x.shape)
    z = net.forward(unpack(x, Format("DynamicFixed", 8, read)))["y"]
    assert np.array_equal(z, unpack(y, Format("DynamicFixed", 8, written)))
    assert [step.codes for step in net.schedule.steps if isinstance(step, HostStep)] == [True]


def copying(channels: int, fraction: int) -> tuple[str, list[Array]]:
    """A convolution "c" that copies its input, and its parameters."""
    stated = (
        f'quant_type: "DynamicFixed" bw_layer_in: 8 bw_layer_out: 8 fl_layer_in: {fraction} fl_layer_out: {fraction}'
    )
    text = (
        'layer { name: "c" type: "Convolution" bottom: "x0" top: "c" convolution_param { '
        f"num_output: {channels} kernel_size: 1 }} precision_param {{ {stated} bw_params: 8 fl_params: 1 }} }}\n"
    )
    return text, [np.eye(channels, dtype=np.float32)[:, :, None, None], np.zeros(channels, np.float32)]


def deconv_argmax(facts: Facts, arrays: Arrays, name: str, folder: Path) -> None:
    """Behind a convolution that copies; 16-bit weights and biases from floats, of which they are 2^15 times as much."""
    x, y = arrays["x"], arrays["y"]
    classes, kernel = facts["N"], facts["K"]
    text, weights = copying(classes, 3)
    text += (
        'layer { name: "d" type: "Deconvolution" bottom: "c" top: "d" convolution_param { '
        f"num_output: {classes} group: {classes} kernel_size: {kernel} stride: {facts['S']} }} "
        'precision_param { quant_type: "DynamicFixed" bw_layer_in: 8 fl_layer_in: 3 } }\n'
        'layer { name: "y" type: "ArgMax" bottom: "d" top: "y" argmax_param { axis: 1 } }\n'
    )
    unit = [arrays["w"][:, None] / np.float32(1 << 15), arrays["b"] / np.float32(1 << 15)]
    net = network(folder, name, text, {"c": weights, "d": unit}, (1, *x.shape))
    codes = np.stack([x, x[::-1]]).astype(np.int8)  # a second image with the classes in another order
    z = net.forward(unpack(codes, Format("DynamicFixed", 8, 3)))["y"]
    assert np.array_equal(z[0, 0], y)
    assert not np.array_equal(z[1], z[0]) and not net.partition.reasons


def pack_unpack(facts: Facts, arrays: Arrays, name: str, _: Path) -> None:
    packing = arithmetic(overlay.load(name)).packing
    format = Format(facts["quant"], facts["bw"], facts["th"] if facts["quant"] == "Xilinx" else facts["fbits"])
    converted = packing(format, False)
    assert isinstance(converted, Converted)
    assert np.array_equal(pack(arrays["f"], converted), arrays["ideal_packed"])
    assert np.array_equal(unpack(arrays["unpack_in"], format), arrays["unpack_ideal"])
    assert packing(format, True) is format  # the network's inputs are rounded


CHECKS: dict[str, Callable[[Facts, Arrays, str, Path], None]] = {
    "batchnorm_scale": batchnorm_scale,
    "conv": convolution,
    "crelu": crelu,
    "deconv_argmax": deconv_argmax,
    "eltwise": eltwise,
    "l2norm": l2norm,
    "pack_unpack": pack_unpack,
    "pool": pool,
    "softmax": softmax,
}


@pytest.mark.parametrize("name", [FULL, DIET])
@pytest.mark.parametrize("kind", CHECKS)
def test_every_vector(vectors: dict[str, list[Vector]], kind: str, name: str, tmp_path: Path) -> None:
    equal: Counter[str] = Counter()
    for facts, arrays in vectors[kind] if name == FULL or kind not in LIMITED else ():
        try:
            CHECKS[kind](facts, arrays, name, tmp_path)
        except AssertionError as error:
            raise AssertionError(f"{facts['name']} on {name}") from error
        equal[kind] += 1
    assert equal[kind] == (VECTORS[kind] if name == FULL or kind not in LIMITED else 0)


def test_no_vector_is_left_out(vectors: dict[str, list[Vector]]) -> None:
    """All 123 have a check, each is run on the full build, and the folder has no other."""
    assert {kind: len(each) for kind, each in vectors.items()} == VECTORS and VECTORS.keys() == CHECKS.keys()
    assert sum(VECTORS.values()) == 123 == len({facts["name"] for each in vectors.values() for facts, _ in each})
    assert len([*FOLDER.glob("*.json")]) == 123
