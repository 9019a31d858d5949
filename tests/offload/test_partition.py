"""Partition: which engine runs what, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import overlay
from chai.blob import Shape
from chai.offload.schedule import DeviceStep
from chai.passes.rewrite import rewrite
from chai.tasks.conv import Conv
from chai.util.paths import resource
from tests.conftest import need_models
from tests.passes.common import AFFINE, AVE, CONV, DEEP, GLOBAL, MAX, make, network

from .divided import SAME, SHAPE, divide, parts

# -- reasons

HOST = {
    "no MVN unit": "probe MVN data -> y",
    "the overlay normalises across channels, not within a channel": (
        "probe LRN data -> y : lrn_param { norm_region: WITHIN_CHANNEL }"
    ),
    "only a Softmax or the caller reads its scores, which 8 bits would blur": (
        "probe InnerProduct data -> y : inner_product_param { num_output: 3 }"
    ),
    "3 bottoms; the overlay multiplies 2": "probe Eltwise data data data -> y : eltwise_param { operation: PROD }",
    "only channels can be concatenated by address": "probe Concat data data -> y : concat_param { axis: 2 }",
    "only channels can be sliced by address": "probe Slice data -> y z : slice_param { axis: 0 }",
    "more than one bottom": f"probe Convolution data data -> y z : {CONV}",
    "how many rows it gets is known only at run time": (
        f"sum Reduction data -> s : reduction_param {{ axis: 1 }}\npick Filter data s -> f\nprobe Convolution f -> y : {CONV}"
    ),
    "it does more than one factor and one addend per channel": "probe Scale data -> y : scale_param { axis: 3 }",
    "a blob of 2 axes": (
        f"fc InnerProduct data -> f : inner_product_param {{ num_output: 4 }}\nprobe BatchNorm f -> y : {GLOBAL}"
    ),
}


@pytest.mark.parametrize("reason", HOST)
def test_reasons(tmp_path: Path, reason: str) -> None:
    division = divide(make(tmp_path, HOST[reason]))
    assert division.reasons["probe"] == reason
    assert division.engine("probe") == "host"


FPGA = {
    "Convolution": CONV,
    "Pooling": AVE,
    "BatchNorm": GLOBAL,
    "Scale": AFFINE,
    "Eltwise": "eltwise_param { coeff: 1 coeff: -2 }",
}


@pytest.mark.parametrize("type", FPGA)
def test_what_an_overlay_runs(tmp_path: Path, type: str) -> None:
    bottoms = "data data" if type == "Eltwise" else "data"
    division = divide(make(tmp_path, f"probe {type} {bottoms} -> y : {FPGA[type]}"))
    assert (parts(division), division.reasons) == ([("fpga", "probe")], {})


def test_a_batchs_own_statistics_stay_on_the_host(tmp_path: Path) -> None:
    lines = f"conv Convolution data -> c : {CONV}\nbn BatchNorm c -> c : batch_norm_param {{ use_global_stats: false }}"
    assert divide(make(tmp_path, lines)).reasons == {"bn": "it does more than one factor and one addend per channel"}


def test_a_custom_layer_stays_on_the_host(tmp_path: Path) -> None:
    lines = "probe twist data -> y : user_defined_layer: true xcustom_param { top_dim: [2, 3, 5, 7] }"
    division = divide(make(tmp_path, lines, custom={"twist": lambda x: None}))
    assert division.reasons == {"probe": "a custom layer"}


CONV_LIMITS = {
    "kernel 13": "kernel_size: 13 pad: 6",
    "kernel 12": "kernel_h: 1 kernel_w: 12 pad: 5",
    "stride 5": "kernel_size: 1 stride_h: 5 stride_w: 1",
    "pad 11": "kernel_size: 1 pad_h: 0 pad_w: 11",
    "dilation 9": "kernel_size: 2 dilation: 9 pad: 9",
}


@pytest.mark.parametrize("what", CONV_LIMITS)
def test_limits_of_the_manifest(tmp_path: Path, what: str) -> None:
    fields = f"convolution_param {{ num_output: 4 {CONV_LIMITS[what]} }}"
    most = getattr(Conv.limits(overlay.load()), f"{what.split()[0]}_max")
    division = divide(make(tmp_path, f"probe Convolution data -> y : {fields}"))
    assert division.reasons == {"probe": f"{what} is more than the overlay's {most}"}


@pytest.mark.parametrize(
    ("line", "shape", "reason"),
    [
        (
            "Convolution data -> y : convolution_param { num_output: 4097 kernel_size: 1 }",
            (1, 1, 1, 2),
            "channels 4097",
        ),
        (
            "Convolution data -> y : convolution_param { num_output: 4097 kernel_size: 1 group: 4097 }",
            (1, 4097, 1, 2),
            "group 4097",
        ),
        (f"Convolution data -> y : {SAME}", (1, 1, 1, 4096), "size 4096"),
        (
            "Convolution data -> y : convolution_param { num_output: 2 kernel_size: 1 pad: 3 }",
            (1, 1, 1, 4090),
            "size 4096",
        ),
        (f"BatchNorm data -> y : {GLOBAL}", (1, 4097, 1, 2), "channels 4097"),
        (f"BatchNorm data -> y : {GLOBAL}", (1, 1, 4096, 1), "size 4096"),
        ("Eltwise data data -> y", (1, 4097, 1, 2), "channels 4097"),
        ("Concat data data -> y", (1, 2064, 1, 2), "channels 4128"),
        ("Slice data -> y z : slice_param { slice_point: 16 }", (1, 4097, 1, 2), "channels 4097"),
        ("Pooling data -> y : pooling_param { kernel_size: 16 }", (1, 1, 17, 17), "kernel 16"),
        ("Pooling data -> y : pooling_param { kernel_size: 1 stride: 16 }", (1, 1, 17, 17), "stride 16"),
        ("Pooling data -> y : pooling_param { global_pooling: true }", (1, 1, 2, 256), "global 256"),
        (f"Pooling data -> y : {MAX}", (1, 4097, 3, 3), "channels 4097"),
        (f"Pooling data -> y : {MAX}", (1, 1, 4096, 3), "size 4096"),
        ("Pooling data -> y : pooling_param { kernel_size: 3 pad: 2 }", (1, 1, 4094, 3), "size 4096"),
        ("LRN data -> y : lrn_param { local_size: 11 }", (1, 20, 3, 3), "local_size 11"),
        ("LRN data -> y", (1, 4097, 3, 3), "channels 4097"),
        ("LRN data -> y", (1, 1, 3, 4096), "size 4096"),
    ],
)
def test_limits_of_every_unit(tmp_path: Path, line: str, shape: Shape, reason: str) -> None:
    division = divide(make(tmp_path, f"probe {line}", shape))
    assert division.reasons["probe"].startswith(f"{reason} is more than the overlay's ")


@pytest.mark.parametrize("rows", [256, 257])
def test_more_images_than_a_task_may_have_within_a_network(tmp_path: Path, rows: int) -> None:
    """Regions, for example; a batch of so many is refused by the device, with the largest that it runs."""
    lines = f"rows Reshape data -> r : reshape_param {{ shape {{ dim: {rows} dim: 1 dim: 2 dim: 3 }} }}\n"
    division = divide(make(tmp_path, f"{lines}probe Convolution r -> y : {SAME}", (1, rows, 2, 3)))
    reason = "257 images are more than the overlay's 256"
    assert division.reasons == {"rows": "no Reshape unit"} | ({"probe": reason} if rows == 257 else {})
    assert not divide(make(tmp_path, f"probe Convolution data -> y : {SAME}", (rows, 1, 2, 3))).reasons


@pytest.mark.parametrize(
    ("line", "kind", "lacking", "reason"),
    [
        (f"Convolution data -> y : {CONV}", "conv", {"leaky": False}, "the overlay has no leaky conv"),
        (
            "Convolution data -> y : convolution_param { num_output: 3 kernel_size: 3 group: 3 }",
            "conv",
            {"depthwise": False},
            "the overlay has no depthwise conv",
        ),
        (f"BatchNorm data -> y : {GLOBAL}", "affine", {"leaky": False}, "the overlay has no leaky affine"),
        ("Eltwise data data -> y", "eltwise", {"leaky": False}, "the overlay has no leaky eltwise"),
        (f"Pooling data -> y : {MAX}", "pool", {"methods": ["AVE"]}, "the overlay has no MAX"),
        (f"Pooling data -> y : {AVE}", "pool", {"methods": ["MAX"]}, "the overlay has no AVE"),
    ],
)
def test_what_a_unit_may_lack(tmp_path: Path, line: str, kind: str, lacking: dict[str, Any], reason: str) -> None:
    value = json.loads(overlay.load().path.read_text())
    value["tasks"][kind] |= lacking
    (tmp_path / "overlay.json").write_text(json.dumps(value))
    leaky = "" if line.startswith("Pooling") else "\nrelu ReLU y -> y : relu_param { negative_slope: 0.25 }"
    for unit, wanted in ((overlay.default, {}), (tmp_path / "overlay.json", {"probe": reason})):
        assert divide(rewrite(make(tmp_path, f"probe {line}{leaky}")), manifest=unit).reasons == wanted


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("Convolution data -> y : convolution_param { num_output: 2 kernel_size: 11 pad: 10 stride: 4 }", (1, 2, 5, 7)),
        ("Convolution data -> y : convolution_param { num_output: 4096 kernel_size: 1 group: 4096 }", (1, 4096, 1, 2)),
        ("Pooling data -> y : pooling_param { kernel_size: 15 pad: 14 stride: 15 }", (1, 2, 17, 17)),
        ("Pooling data -> y : pooling_param { pool: AVE global_pooling: true }", (1, 2, 255, 3)),
        ("Concat data data -> y", (1, 2048, 1, 2)),
        ("LRN data -> y : lrn_param { local_size: 9 }", (1, 4096, 1, 2)),
    ],
)
def test_what_is_exactly_at_a_limit_runs(tmp_path: Path, line: str, shape: Shape) -> None:
    assert divide(make(tmp_path, f"probe {line}", shape)).reasons == {}


@pytest.mark.parametrize(
    ("unsigned", "most", "more"),
    [(True, (273, 241), (134, 491)), (False, (257, 510), (256, 512))],  # products: 65793 and 65794, 131070 and 131072
)
def test_an_average_over_too_many_pixels(
    tmp_path: Path, unsigned: bool, most: tuple[int, int], more: tuple[int, int]
) -> None:
    """65794 steps of 255 or 131072 of 128 reach 2^24: the first sum the accumulator does not hold."""

    def change(value: dict[str, Any]) -> None:
        value["tasks"]["pool"].update(global_max=4095)
        value["unsigned"] = unsigned

    manifest = edited(tmp_path, change)
    line = "probe Pooling data -> y : pooling_param {{ pool: {} global_pooling: true }}"
    assert divide(make(tmp_path, line.format("AVE"), (1, 1, *more)), manifest=manifest).reasons == {
        "probe": f"an average over {more[0] * more[1]} pixels could leave the accumulator"
    }
    assert not divide(make(tmp_path, line.format("MAX"), (1, 1, *more)), manifest=manifest).reasons
    assert not divide(make(tmp_path, line.format("AVE"), (1, 1, *most)), manifest=manifest).reasons


@pytest.mark.parametrize(
    ("unit", "line"),
    [
        ("pool", f"Pooling data -> y : {MAX}"),
        ("eltwise", "Eltwise data data -> y"),
        ("affine", f"Scale data -> y : {AFFINE}"),
        ("copy", "Concat data -> y"),
        ("copy", "Slice data -> y"),
    ],
)
def test_an_overlay_may_lack_a_unit(tmp_path: Path, unit: str, line: str) -> None:
    manifest = edited(tmp_path, lambda value: value["tasks"].pop(unit))
    division = divide(make(tmp_path, f"probe {line}"), manifest=manifest)
    assert division.reasons == {"probe": f"no {unit} unit"}


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_an_overlay_may_lack_the_unit_of_an_lrn(tmp_path: Path, region: str) -> None:
    manifest = edited(tmp_path, lambda value: value["tasks"].pop("lrn"))
    graph = make(tmp_path, f"probe LRN data -> y : lrn_param {{ norm_region: {region} }}")
    assert divide(graph, manifest=manifest).reasons == {"probe": "no LRN unit"}


def edited(folder: Path, change: Any) -> Path:
    """A changed copy of the default manifest."""
    value = json.loads(resource("hw_overlays", overlay.default, "overlay.json").read_text())
    change(value)
    path = folder / "overlay.json"
    path.write_text(json.dumps(value))
    return path


# -- the user's choice

CHAIN = f"""
    conv1 Convolution data -> c1 : {CONV}
    relu1 ReLU c1 -> c1
    drop1 Dropout c1 -> c1
    conv2 Convolution c1 -> c2 : {CONV}
    abs MVN c2 -> y
    """


def test_a_layer_may_be_sent_to_the_host(tmp_path: Path) -> None:
    for name in ("conv1", "relu1"):  # a layer that another one took in stands for both
        net = network(tmp_path, CHAIN, device="emulator", engine={name: "host"})
        assert parts(net.offload.partition) == [("host", "conv1"), ("fpga", "conv2"), ("host", "abs")]
        assert net.offload.partition.reasons["conv1"] == "chosen by the user"
        net.forward(np.ones(SHAPE))
        assert net.schedule.engines() == [
            *("host:Convolution", "host:Pack", "fpga:Convolution", "host:Unpack", "host:MVN"),
        ]


def test_engine_of_a_layer_by_any_of_its_names(tmp_path: Path) -> None:
    net = network(tmp_path, CHAIN, device="emulator", engine={"conv2": "host", "conv1": "fpga"})
    engines = {name: net.offload.partition.engine(name) for name in ("conv1", "relu1", "conv2", "abs")}
    assert engines == {"conv1": "fpga", "relu1": "fpga", "conv2": "host", "abs": "host"}


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            {"abs": "fpga"},
            "layer 'abs' cannot run on the overlay: no MVN unit (hint: leave it on the host: abs=host)",
        ),
        ({"cnv1": "host"}, "engine: there is no layer 'cnv1' (hint: did you mean 'conv1'?)"),
        ({"zzz": "host"}, "engine: there is no layer 'zzz' (hint: chai show lists them)"),
        ({"conv1": "gpu"}, "engine of layer 'conv1': expected host or fpga, found 'gpu' (hint: e.g. conv1=host)"),
    ],
)
def test_choices_that_cannot_be_followed(tmp_path: Path, engine: dict[str, str], message: str) -> None:
    with pytest.raises(chai.UsageError) as caught:
        network(tmp_path, CHAIN, device="emulator", engine=engine).forward(np.ones(SHAPE))
    assert str(caught.value) == message


def test_two_engines_for_one_layer_are_not_passed_over(tmp_path: Path) -> None:
    """ReLU goes where its convolution goes; asking for something else cannot be followed in silence."""
    net = network(tmp_path, CHAIN, device="emulator", engine={"conv1": "fpga", "relu1": "host"})
    try:
        engine = net.offload.partition.engine("relu1")
    except chai.UsageError as error:
        assert "relu1" in str(error)
    else:
        assert engine == "host"


def test_a_layer_that_a_pass_dropped_is_not_called_unknown(tmp_path: Path) -> None:
    net = network(tmp_path, CHAIN, device="emulator", engine={"drop1": "host"})
    try:
        net.offload  # noqa: B018 - the partition is made here
    except chai.UsageError as error:
        assert "there is no layer" not in str(error)


# -- reasons that only numbers show


@pytest.mark.parametrize(
    ("precision", "reason"),
    [
        (
            "fl_layer_in: 6 fl_layer_out: 60",
            "its output steps (DynamicFixed(8, fl 60)) are too fine for 17-bit multipliers",
        ),
        (
            'quant_type: "Xilinx" th_layer_in: 2 th_layer_out: 2 th_params: [1, 2, 3]',
            "3 th_params for 4 output channels",
        ),
        ("fl_layer_in: 6 fl_layer_out: 5 fl_params: 30", "a sum could reach "),
    ],
)
def test_numbers_that_do_not_fit_go_to_the_host(tmp_path: Path, precision: str, reason: str) -> None:
    fields = f"{CONV} precision_param {{ bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 {precision} }}"
    lines = f"probe Convolution data -> c : {fields}\npool Pooling c -> y : {MAX}"
    net = network(tmp_path, lines, device="emulator")
    net.forward(np.ones(SHAPE))
    assert net.offload.partition.reasons["probe"].startswith(reason)
    assert net.schedule.engines()[0] == "host:Convolution"
    asked = network(tmp_path, lines, device="emulator", engine={"probe": "fpga"})
    with pytest.raises(chai.UsageError, match=r"layer 'probe' cannot run on the overlay: "):
        asked.forward(np.ones(SHAPE))


# -- real networks


def loaded(name: str) -> chai.Net:
    folder = need_models() / name
    net = chai.Net(folder / "deploy.prototxt", folder / "weights.caffemodel", device="emulator", batch=1)
    net.forward(np.load(folder / "cases" / "camel" / "input.npy"))
    return net


def conversions(net: chai.Net) -> list[str]:
    """Pack and Unpack with the blob."""
    return [str(step).partition("@")[0] for step in net.schedule.conversions]


REASONS = {"InnerProduct": "only a Softmax or the caller reads its scores, which 8 bits would blur"}


def test_googlenet_is_divided_as_a_person_would() -> None:
    with loaded("googlenet") as net:
        engines = net.schedule.engines()
        head = [
            *("host:Pack", "fpga:Convolution", "fpga:Pooling", "fpga:LRN"),
            *("fpga:Convolution", "fpga:Convolution", "fpga:LRN", "fpga:Pooling"),
        ]
        tail = ["host:Unpack", "host:InnerProduct", "host:Softmax"]
        assert engines[: len(head)] == head
        assert engines[-3:] == tail
        assert set(engines[len(head) : -3]) == {"fpga:Convolution", "fpga:Pooling", "fpga:Concat"}
        assert sum(isinstance(step, DeviceStep) for step in net.schedule.steps) == 1
        assert conversions(net) == ["Pack data", "Unpack pool5/7x7_s1"]
        division = net.offload.partition
        host = {"loss3/classifier": "InnerProduct", "prob": "Softmax"}
        assert division.reasons == {name: REASONS.get(type, f"no {type} unit") for name, type in host.items()}
        for layer in net.graph.layers:
            if layer.type in ("Convolution", "ReLU", "Pooling", "LRN", "Concat"):
                assert division.engine(layer.name) == "fpga", layer.name


def test_squeezenet_is_one_segment() -> None:
    with loaded("squeezenet_v1.1") as net:
        engines = net.schedule.engines()
        assert engines[0] == "host:Pack"
        assert engines[-2:] == ["host:Unpack", "host:Softmax"]
        assert set(engines[1:-2]) == {"fpga:Convolution", "fpga:Pooling", "fpga:Concat"}
        assert conversions(net) == ["Pack data", "Unpack pool10"]
        assert list(net.offload.partition.reasons) == ["prob"]


def test_one_layer_sent_to_the_host_costs_one_way_there_and_back(tmp_path: Path) -> None:
    lines = f"a Convolution data -> a : {DEEP}\nb Pooling a -> b : {AVE}\nc Convolution b -> c : {DEEP}"
    net = network(tmp_path, lines, device="emulator", engine={"b": "host"})
    net.forward(np.ones(SHAPE))
    assert conversions(net) == ["Pack data", "Unpack a", "Pack b", "Unpack c"]


def test_a_pooling_of_more_columns_than_the_buffer_holds(tmp_path: Path) -> None:
    """Three unfinished rows of 683 windows are 2,049 columns, one more than there are; 682 fit, and a global one always."""
    reasons = []
    sized = "kernel_size: 6 stride: 2"
    for width, pooling in ((1370, sized), (1368, sized), (1370, "global_pooling: true")):
        path = tmp_path / "net.prototxt"
        path.write_text(
            f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: [1, 3, 11, {width}] }} }} }}\n'
            f'layer {{ name: "p" type: "Pooling" bottom: "data" top: "p" pooling_param {{ pool: MAX {pooling} }} }}\n'
        )
        reasons.append(chai.Net(path, device="null", overlay="pynq-z2").offload.partition.reasons.get("p"))
    assert reasons[:2] == ["its unfinished windows take 2,049 columns, the overlay holds 2,048", None]
    assert "columns" not in str(reasons[2])


def test_rows_that_do_not_fit_the_input_buffer(tmp_path: Path) -> None:
    """Rows of 4,000 pixels go in strips. Of 1,100 channels, a strip of one window is too much: 11 x 11 x 69 words."""
    path = tmp_path / "net.prototxt"

    def reasons(channels: int, width: int, overlay: str) -> dict[str, str]:
        shape = f"shape {{ dim: [1, {channels}, 11, {width}] }}"
        path.write_text(
            f'layer {{ name: "data" type: "Input" top: "data" input_param {{ {shape} }} }}\n'
            'layer { name: "c" type: "Convolution" bottom: "data" top: "c" '
            "convolution_param { num_output: 2 kernel_size: 11 } }\n"
        )
        return dict(chai.Net(path, device="null", overlay=overlay).offload.partition.reasons)

    for name in ("pynq-z2", "zcu102"):
        assert reasons(3, 4000, name) == reasons(3, 744, name) == {}
        assert reasons(1100, 20, name) == {"c": "11 input rows take 242,880 bytes, the overlay stages 131,072"}


@pytest.mark.parametrize("line", [f"BatchNorm data -> y : {GLOBAL}", "PReLU data -> y"])
def test_a_pixel_that_does_not_fit_the_input_buffer(tmp_path: Path, line: str) -> None:
    """Of an affine Task: 41 words for 648 channels."""
    value = json.loads(overlay.load().path.read_text())
    for words, reason in ((2 * 41, None), (2 * 41 - 1, "1 input rows take 1,312 bytes, the overlay stages 1,296")):
        value["buffers"]["input"]["depth"] = words
        (tmp_path / "overlay.json").write_text(json.dumps(value))
        graph = make(tmp_path, f"before Pooling data -> d : {MAX}\nprobe {line.replace('data', 'd')}", (1, 648, 4, 5))
        assert divide(graph, manifest=tmp_path / "overlay.json").reasons.get("probe") == reason
