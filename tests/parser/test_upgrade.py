"""Old forms read as the current one: V0, V1, legacy inputs and transforms."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from chai import layers
from chai.errors import ChaiError, ParseError
from chai.graph import Layer
from chai.parser.load import load_graph
from chai.parser.message import Message
from chai.parser.schema import fields as schema_fields
from chai.parser.upgrade import V0_TYPES, upgrade
from chai.plugins.registry import Registry

from .common import DATA, graph, layer, message, wiring


def plain(message: Message) -> dict[str, Any]:
    """A message as nested dicts; a field with one value is that value."""
    values = {n: [plain(v) if isinstance(v, Message) else v for v in message.all(n)] for n in message.values}
    return {n: v[0] if len(v) == 1 else v for n, v in values.items()}


def upgraded(text: str) -> list[dict[str, Any]]:
    return [plain(v) for v in upgrade(message(text))]


def v0(type: str, more: str = "", wires: str = 'bottom: "a" top: "b"') -> str:
    return f'layers {{ layer {{ name: "x" type: "{type}" {more} }} {wires} }}\n'


def refused(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        upgrade(message(text))
    return caught.value


# -- V0

FILLERS = 'weight_filler { type: "xavier" } bias_filler { type: "constant" value: 1 }'
FILLED = {"weight_filler": {"type": "xavier"}, "bias_filler": {"type": "constant", "value": 1.0}}


@pytest.mark.parametrize(
    ("old", "flat", "type", "expected"),
    [
        (
            "conv",
            f"num_output: 2 biasterm: false kernelsize: 3 pad: 1 stride: 2 group: 2 {FILLERS} blobs_lr: 1 weight_decay: 1",
            "Convolution",
            {
                "convolution_param": {
                    "num_output": 2,
                    "bias_term": False,
                    "kernel_size": 3,
                    "pad": 1,
                    "stride": 2,
                    "group": 2,
                    **FILLED,
                }
            },
        ),
        (
            "innerproduct",
            f"num_output: 5 biasterm: true {FILLERS}",
            "InnerProduct",
            {"inner_product_param": {"num_output": 5, "bias_term": True, **FILLED}},
        ),
        (
            "pool",
            "pool: AVE kernelsize: 3 stride: 2 pad: 1",
            "Pooling",
            {"pooling_param": {"pool": "AVE", "kernel_size": 3, "stride": 2, "pad": 1}},
        ),
        (
            "lrn",
            "local_size: 3 alpha: 2 beta: .5 k: 4",
            "LRN",
            {"lrn_param": {"local_size": 3, "alpha": 2.0, "beta": 0.5, "k": 4.0}},
        ),
        ("dropout", "dropout_ratio: .4", "Dropout", {"dropout_param": {"dropout_ratio": 0.4}}),
        ("concat", "concat_dim: 2", "Concat", {"concat_param": {"concat_dim": 2}}),
        (
            "data",
            'source: "db" batchsize: 4 rand_skip: 1 scale: .5 meanfile: "m" cropsize: 9 mirror: true',
            "Data",
            {
                "data_param": {"source": "db", "batch_size": 4, "rand_skip": 1},
                "transform_param": {"scale": 0.5, "mean_file": "m", "crop_size": 9, "mirror": True},
            },
        ),
        (
            "images",
            'source: "l" batchsize: 4 rand_skip: 1 shuffle_images: true new_height: 5 new_width: 6 cropsize: 3',
            "ImageData",
            {
                "image_data_param": {
                    "source": "l",
                    "batch_size": 4,
                    "rand_skip": 1,
                    "shuffle": True,
                    "new_height": 5,
                    "new_width": 6,
                },
                "transform_param": {"crop_size": 3},
            },
        ),
        (
            "window_data",
            'source: "w" batchsize: 4 det_fg_threshold: .6 det_bg_threshold: .1 det_fg_fraction: .2 det_context_pad: 16 '
            'det_crop_mode: "square" scale: 2 mirror: true',
            "WindowData",
            {
                "window_data_param": {
                    "source": "w",
                    "batch_size": 4,
                    "fg_threshold": 0.6,
                    "bg_threshold": 0.1,
                    "fg_fraction": 0.2,
                    "context_pad": 16,
                    "crop_mode": "square",
                },
                "transform_param": {"scale": 2.0, "mirror": True},
            },
        ),
        ("hdf5_data", 'source: "h" batchsize: 2', "HDF5Data", {"hdf5_data_param": {"source": "h", "batch_size": 2}}),
        (
            "hdf5_output",
            'hdf5_output_param { file_name: "o" }',
            "HDF5Output",
            {"hdf5_output_param": {"file_name": "o"}},
        ),
        ("infogain_loss", 'source: "i"', "InfogainLoss", {"infogain_loss_param": {"source": "i"}}),
        ("relu", "", "ReLU", {}),
        ("softmax", "", "Softmax", {}),
    ],
)
def test_v0_layers(old: str, flat: str, type: str, expected: dict[str, Any]) -> None:
    assert upgraded(v0(old, flat)) == [{"name": "x", "type": type, "bottom": "a", "top": "b", **expected}]


def test_every_v0_field_of_a_convolution_is_read() -> None:
    """A V0 network is the V2 network in other words."""
    old = 'input: "data" input_dim: [1, 4, 9, 9]' + v0(
        "conv",
        f"num_output: 6 kernelsize: 3 pad: 1 stride: 2 group: 2 biasterm: false {FILLERS}",
        'bottom: "data" top: "b"',
    )
    new = 'input: "data" input_dim: [1, 4, 9, 9]' + layer(
        "x",
        "Convolution",
        "data",
        "b",
        f"convolution_param {{ num_output: 6 kernel_size: 3 pad: 1 stride: 2 group: 2 bias_term: false {FILLERS} }}",
    )
    assert wiring(graph(old)) == wiring(graph(new))


def test_v0_padding_goes_to_its_readers() -> None:
    text = (
        'input: "a" input_dim: [1, 2, 8, 8]'
        'layers { layer { name: "p" type: "padding" pad: 2 } bottom: "a" top: "padded" }'
        'layers { layer { name: "c" type: "conv" num_output: 3 kernelsize: 5 } bottom: "padded" top: "c" }'
        'layers { layer { name: "m" type: "pool" pool: AVE kernelsize: 3 } bottom: "padded" top: "m" }'
    )
    net = graph(text)
    assert [(v.name, v.bottoms) for v in net.layers] == [("input", ()), ("c", ("a",)), ("m", ("a",))]
    assert net.layer("c").params.pad == (2,)
    assert net.layer("m").params.pad == 2


def test_v0_padding_before_another_layer_is_refused() -> None:
    text = (
        'layers { layer { name: "p" type: "padding" pad: 2 } bottom: "a" top: "b" }\n'
        'layers { layer { name: "r" type: "relu" } bottom: "b" top: "c" }'
    )
    error = refused(text)
    assert "a padding layer can be read by a convolution or pooling only" in error.message
    assert (error.line, error.layer) == (2, "r")


@pytest.mark.parametrize(
    ("wires", "name", "words"),
    [
        ('top: "b"', "p", "padding layer 'p' takes 1 bottom, found 0"),
        ('bottom: "a" bottom: "z" top: "b"', "p", "padding layer 'p' takes 1 bottom, found 2"),
        ('bottom: "a"', "c", "layer 'c' reads blob 'b', which no layer above writes"),
        ("", "c", "layer 'c' reads blob 'b', which no layer above writes"),
    ],
)
def test_v0_padding_with_wires_missing_or_left_over_is_refused(wires: str, name: str, words: str) -> None:
    text = (
        f'input: "a" input_dim: [1, 1, 4, 4] layers {{ layer {{ name: "p" type: "padding" pad: 1 }} {wires} }}'
        'layers { layer { name: "c" type: "conv" num_output: 1 kernelsize: 3 } bottom: "b" top: "c" }'
    )
    with pytest.raises(ChaiError, match=words) as caught:
        graph(text)
    assert caught.value.layer == name


def test_v0_type_is_refused_with_its_place() -> None:
    error = refused('\nlayers { layer { name: "x" type: "Convolution" } }')
    assert error.message == "layer 'x': 'Convolution' is no V0 layer type"
    assert (error.line, error.layer) == (2, "x")
    assert "this layer has no type" in refused('layers { layer { name: "x" } }').message


# -- V1

# of upgrade_proto.cpp in Caffe
V1_TYPES = {
    "ABSVAL": "AbsVal", "ACCURACY": "Accuracy", "ARGMAX": "ArgMax", "BNLL": "BNLL", "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss", "CONVOLUTION": "Convolution", "DATA": "Data", "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout", "DUMMY_DATA": "DummyData", "ELTWISE": "Eltwise", "EUCLIDEAN_LOSS": "EuclideanLoss", "EXP": "Exp",
    "FLATTEN": "Flatten", "HDF5_DATA": "HDF5Data", "HDF5_OUTPUT": "HDF5Output", "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col", "IMAGE_DATA": "ImageData", "INFOGAIN_LOSS": "InfogainLoss", "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN", "MEMORY_DATA": "MemoryData", "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss", "MVN": "MVN",
    "POOLING": "Pooling", "POWER": "Power", "RELU": "ReLU", "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss", "SILENCE": "Silence", "SLICE": "Slice", "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss", "SPLIT": "Split", "TANH": "TanH", "THRESHOLD": "Threshold", "WINDOW_DATA": "WindowData",
    "LOCAL": "Local",
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), sorted(V1_TYPES.items()))
def test_v1_types(old: str, new: str) -> None:
    assert upgraded(f'layers {{ name: "x" type: {old} bottom: "a" top: "b" }}') == [
        {"name": "x", "type": new, "bottom": "a", "top": "b"}
    ]


def test_every_v1_type_of_the_schema_has_a_name() -> None:
    assert set(V1_TYPES) == set(schema_fields("V1LayerParameter")["type"].enum) - {"NONE"}


@pytest.mark.parametrize("new", sorted({*V1_TYPES.values(), *V0_TYPES.values()} - {"padding"}))
def test_old_names_lead_to_types_as_the_layers_spell_them(new: str) -> None:
    """Some old types have no layer here; none may differ from one in its case only."""
    near = [t for t in layers.types() if t.lower() == new.lower()]
    assert near in ([], [new])


def test_v1_fields_move_as_they_are() -> None:
    text = (
        'layers { name: "x" type: CONVOLUTION bottom: "a" top: "b" blobs_lr: 1 weight_decay: 1 loss_weight: 2 '
        "include { phase: TEST } exclude { } convolution_param { num_output: 3 } transform_param { scale: 2 } }"
    )
    (entry,) = upgraded(text)
    assert entry["type"] == "Convolution"
    assert entry["convolution_param"] == {"num_output": 3}
    assert entry["include"] == {"phase": "TEST"}
    assert entry["exclude"] == {}
    assert entry["transform_param"] == {"scale": 2.0}


def test_v1_shared_parameter_names_do_no_harm() -> None:
    net = (
        DATA.replace("layer {", "layers {").replace('"Input"', "DUMMY_DATA").replace("input_param", "dummy_data_param")
    )
    net += 'layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" param: "w" param: "b" blob_share_mode: STRICT '
    net += "convolution_param { num_output: 1 kernel_size: 1 } }"
    assert [v.type for v in graph(net).layers] == ["DummyData", "Convolution"]


@pytest.mark.parametrize(
    ("text", "words"), [("type: NONE", "'NONE' is no V1 layer type"), ("", "this layer has no type")]
)
def test_v1_type_is_refused(text: str, words: str) -> None:
    error = refused(f'layers {{ name: "x" {text} }}')
    assert words in error.message
    assert error.layer == "x"


@pytest.mark.parametrize(("old", "new"), [("ROI_POOLING", "ROIPooling"), ("BN", "BN"), ("UNPOOLING", "UNPOOLING")])
def test_v1_types_of_forks(old: str, new: str) -> None:
    """A type that chai has in the new form is that one, and has its parameters; others may be a user's own."""
    text = f"layers {{ type: {old} bottom: 'a' bottom: 'b' top: 'c' roi_pooling_param {{ pooled_h: 3 pooled_w: 5 }} }}"
    (entry,) = upgraded(text)
    assert entry["type"] == new
    assert entry["roi_pooling_param"] == {"pooled_h": 3, "pooled_w": 5}


def test_a_v1_crop_is_refused() -> None:
    """Its offset is none of its parameters: a Crop would take 0."""
    error = refused('layers {\n name: "crop" type: CROP bottom: "score" bottom: "data" top: "out" }')
    assert error.message == "layer 'crop': a CROP, whose offset forks compute, has no definition here"
    assert (error.line, error.column) == (2, 21)
    assert "crop_param { offset: N }" in (error.hint or "")


# -- mixtures


def test_mixed_forms_are_refused() -> None:
    error = refused('layer { name: "a" type: "ReLU" }\nlayers { name: "b" type: RELU }')
    assert "layers { } (old form) and layer { } (new form) in one file" in error.message
    assert error.line == 2
    error = refused(v0("relu") + 'layers { name: "b" type: RELU }')
    assert "forms V0 and V1 are mixed" in error.message
    assert error.line == 2


# -- transforms


@pytest.mark.parametrize(
    ("type", "param"), [("Data", "data"), ("ImageData", "image_data"), ("WindowData", "window_data")]
)
def test_old_transform_fields_move(type: str, param: str) -> None:
    text = layer(
        "x", type, "", "t", f'{param}_param {{ source: "s" scale: .5 mean_file: "m" crop_size: 7 mirror: true }}'
    )
    assert upgraded(text) == [
        {
            "name": "x",
            "type": type,
            "top": "t",
            f"{param}_param": {"source": "s"},
            "transform_param": {"scale": 0.5, "mean_file": "m", "crop_size": 7, "mirror": True},
        }
    ]


def test_transform_param_wins_over_the_old_place() -> None:
    text = layer("x", "Data", "", "t", "data_param { scale: 3 crop_size: 7 } transform_param { scale: 2 }")
    assert upgraded(text)[0]["transform_param"] == {"scale": 2.0, "crop_size": 7}


# -- inputs


@pytest.mark.parametrize(
    "text",
    [
        'input: "a" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8',
        'input: "a" input_dim: [1, 3, 8, 8]',
        'input: "a" input_shape { dim: 1 dim: 3 dim: 8 dim: 8 }',
        layer("input", "Input", "", "a", "input_param { shape { dim: [1, 3, 8, 8] } }"),
    ],
)
def test_input_forms(text: str) -> None:
    net = graph(text + "\n" + layer("r", "ReLU", "a", "b"))
    assert net.inputs == {"a": (1, 3, 8, 8)}
    assert [(v.name, v.type, v.tops) for v in net.layers] == [("input", "Input", ("a",)), ("r", "ReLU", ("b",))]


def test_several_inputs() -> None:
    relu = layer("r", "Eltwise", "a b", "c")
    assert graph('input: ["a", "b"] input_dim: [1, 2, 3, 4, 5, 6, 7, 8]' + relu).inputs == {
        "a": (1, 2, 3, 4),
        "b": (5, 6, 7, 8),
    }
    assert graph('input: ["a", "b"] input_shape { dim: 1 } input_shape { dim: [2, 3] }' + relu).inputs == {
        "a": (1,),
        "b": (2, 3),
    }
    assert graph('input: ["a", "b"]' + relu).inputs == {"a": None, "b": None}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('input: "a" input_dim: [1, 2, 3]', "4 input_dim expected for 1 input, found 3"),
        ('input: "a" input_dim: [1, 2, 3, 4, 5]', "4 input_dim expected for 1 input, found 5"),
        ('input: ["a", "b", "c"] input_shape { } input_shape { }', "3 inputs but 2 input_shape"),
        ('input: "a" input_shape { } input_dim: 1', "input_shape and input_dim are both given"),
    ],
)
def test_uneven_inputs_are_refused(text: str, words: str) -> None:
    error = refused(text + "\n" + layer("r", "ReLU", "a", "b"))
    assert words in error.message
    assert error.line == 1


def test_a_layer_may_be_called_input_beside_legacy_inputs() -> None:
    """Caffe's own upgrade makes a layer of that name and does not mind another."""
    text = 'input: "data" input_dim: [1, 1, 2, 2]' + layer("input", "ReLU", "data", "out")
    assert [v.type for v in graph(text).layers] == ["Input", "ReLU"]


# -- one network in every form


def normal(net: list[Layer]) -> list[tuple[Any, ...]]:
    """What the variants share: not the name of the input, its batch, the fillers, or an extra Dropout."""

    def params(record: Any) -> Any:
        fillers = {f.name: None for f in fields(record) if f.name.endswith("_filler")}
        return replace(record, **fillers)

    def caffe(blobs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(b.partition("@")[0] for b in blobs)

    kept = [v for v in net if v.type not in ("Input", "Data", "Dropout")]
    return [(v.name, v.type, caffe(v.bottoms), caffe(v.tops), params(v.params)) for v in kept]


@pytest.mark.parametrize("form", ["v0", "v1", "v2_odd"])
def test_format_variants_are_one_network(models: Path, form: str) -> None:
    folder = models / "format_variants"
    variant = load_graph(folder / f"lenet_{form}.prototxt", Registry())
    wanted = load_graph(folder / "lenet_v2.prototxt", Registry())
    assert normal(variant.layers) == normal(wanted.layers)
    assert {b: s[1:] for b, s in variant.inputs.items() if s} == {b: s[1:] for b, s in wanted.inputs.items() if s}
    assert variant.outputs == wanted.outputs == ["prob"]
    assert variant.name == wanted.name == "LeNet"


def test_the_v0_training_net_is_the_same_network_without_its_end(models: Path) -> None:
    folder = models / "format_variants"
    net = load_graph(folder / "lenet_v0_train.prototxt", Registry())
    wanted = load_graph(folder / "lenet_v2.prototxt", Registry())
    assert normal(net.layers) == normal(wanted.layers)[:-1]
    assert list(net.inputs) == ["data"]
    assert net.transforms["data"].scale == pytest.approx(1 / 256)
    assert net.outputs == ["ip2"]
