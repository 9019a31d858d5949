"""Damaged and hostile files: a network, or a ChaiError; nothing else, whatever the bytes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

import pytest

from chai import layers
from chai.errors import ChaiError, ParseError
from chai.graph import Graph
from chai.graph.source import Transform
from chai.parser.assign import message_of
from chai.parser.caffemodel import Weights, check_fit
from chai.parser.load import load_graph
from chai.parser.schema import fields
from chai.passes.infer_shapes import infer_shapes
from chai.plugins.fields import CustomParams
from chai.plugins.registry import Registry

from .common import DATA, field, floats, graph, layer, load, number, shape, v2
from .mutate import delete, duplicate, extreme, flip, mutants, quoted, swap, truncate


def survives(path: Path) -> Graph | None:
    """The network of a file, None if it was refused as it should be."""
    try:
        net = load_graph(path, Registry())
    except ChaiError as error:
        assert error.headline.startswith(str(path)), error.headline
        assert error.message.strip()
        return None
    try:
        shapes = infer_shapes(net)
    except ChaiError:
        return net
    assert all(d > 0 for s in shapes.values() for d in s)
    return net


TEXTS = [
    "format_variants/lenet_v0.prototxt",
    "format_variants/lenet_v0_train.prototxt",
    "format_variants/lenet_v1.prototxt",
    "format_variants/lenet_v2_odd.prototxt",
    "mtcnn_det3/deploy.prototxt",
    "synth_fcn8ish/deploy.prototxt",
    "synth_alexnet_group_lrn/deploy.prototxt",
]


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TEXTS)
def test_mutated_prototxts(models: Path, tmp_path: Path, name: str, count: int) -> None:
    rng = random.Random(name)
    path = tmp_path / "n.prototxt"
    texts = mutants((models / name).read_bytes(), rng, [flip, delete, duplicate, truncate, swap, extreme, quoted])
    alive = 0
    for _ in range(count):
        path.write_bytes(next(texts))
        alive += survives(path) is not None
    assert 0.1 * count <= alive <= 0.9 * count  # the damage is neither harmless nor hopeless


def test_mutated_ssd_network(models: Path, tmp_path: Path) -> None:
    """Fewer, because the file is large; it has the types of detection networks."""
    rng = random.Random(1)
    path = tmp_path / "n.prototxt"
    texts = mutants((models / "yuface_v1_ssd" / "deploy.prototxt").read_bytes(), rng, [extreme, quoted, swap])
    for _ in range(100):
        path.write_bytes(next(texts))
        survives(path)


LEGACY = number(1, 1) + number(4, 2) + floats(1, 2) + number(2, 1) + number(3, 1)
SMALL = (
    field(1, b"net")
    + v2("c", shape(2, 3, 1, 1) + floats(*range(6)), floats(1, 2) + shape(2))
    + v2("half", shape(4) + number(10, 2) + field(12, b"\0" * 8))
    + field(2, field(4, b"old") + number(5, 14) + field(6, LEGACY))
)


def test_mutated_small_caffemodel(tmp_path: Path) -> None:
    """Small, so that most damage hits tags and lengths rather than numbers."""
    net = graph(DATA + layer("c", "Convolution", "data", "c", "convolution_param { num_output: 2 kernel_size: 1 }"))
    shapes = infer_shapes(net)
    path = tmp_path / "w.caffemodel"
    contents = mutants(SMALL, random.Random(2), [flip, flip, delete, duplicate, truncate, swap])
    alive = 0
    for _ in range(2000):
        path.write_bytes(next(contents))
        try:
            weights = Weights(path)
            alive += 1
            for name in weights.layers:
                load(weights, name)
            check_fit(net, shapes, weights)
        except ChaiError:
            continue
    assert 200 <= alive <= 1800


def test_mutated_real_caffemodel(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "w.caffemodel"
    whole = (models / "mtcnn_det1" / "weights.caffemodel").read_bytes()
    contents = mutants(whole, random.Random(3), [flip, delete, duplicate, truncate, swap])
    for _ in range(300):
        path.write_bytes(next(contents))
        try:
            weights = Weights(path)
            for name in weights.layers:
                assert all(b.dtype == "f4" for b in load(weights, name))
        except ChaiError as error:
            assert str(path) in error.headline


# -- every integer that a layer reads

SOURCES = {
    "AnnotatedData", "Data", "DenseImageData", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "Parameter",
    "WindowData",
}  # fmt: skip
BASE: dict[str, dict[str, str]] = {  # fields without which a type is refused anyway
    "ArgMax": {"top_k": "1"},
    "ContinuationIndicator": {"time_step": "3"},
    "Convolution": {"num_output": "4", "kernel_size": "3"},
    "Deconvolution": {"num_output": "4", "kernel_size": "3"},
    "ConvolutionDepthwise": {"num_output": "3", "kernel_size": "3"},
    "DepthwiseConvolution": {"num_output": "3", "kernel_size": "3", "group": "3"},
    "DenseImageData": {"new_height": "4", "new_width": "4"},
    "DepthToSpace": {"block_size": "1"},
    "DetectionOutput": {"num_classes": "2"},
    "DummyData": {"shape": "{ dim: [1, 3, 4, 4] }"},
    "Embed": {"num_output": "4", "input_dim": "5"},
    "ImageData": {"new_height": "4", "new_width": "4"},
    "Im2col": {"kernel_size": "3"},
    "InnerProduct": {"num_output": "4"},
    "Input": {"shape": "{ dim: [1, 3, 4, 4] }"},
    "Interp": {"zoom_factor": "2"},
    "Local": {"num_output": "4", "kernel_size": "3"},
    "LSTM": {"num_output": "4"},
    "MemoryData": {"batch_size": "1", "channels": "3", "height": "4", "width": "4"},
    "Pad": {"paddings": "[0, 0, 0, 0, 1, 1, 1, 1]"},
    "Parameter": {"shape": "{ dim: [1, 3, 4, 4] }"},
    "Permute": {"order": "[0, 2, 3, 1]"},
    "Pooling": {"kernel_size": "3"},
    "PriorBox": {"min_size": "4"},
    "Proposal": {"ratio": "1", "scale": "[2, 4]"},
    "PSROIPooling": {"spatial_scale": "1", "output_dim": "3", "group_size": "1"},
    "Reorg": {"stride": "1"},
    "Reshape": {"shape": "{ dim: [0, -1] }"},
    "Resize": {"size": "[0, 0, 4, 4]"},
    "RNN": {"num_output": "4"},
    "ROIPooling": {"pooled_h": "2", "pooled_w": "2"},
    "SPP": {"pyramid_height": "1"},
    "Tile": {"tiles": "2"},
    "AnchoredDetectionOutput": {"anchor": "[1, 2, 3, 4]", "stride": "8"},
    "AnchorFreeDetectionOutput": {"reg_max": "2"},
    "DecodedDetectionOutput": {"height": "8", "width": "8"},
    "YoloDetectionOutput": {"num_box": "2", "num_classes": "1", "biases": "[1, 2, 3, 4]"},
    "Yolov3DetectionOutput": {
        "num_box": "2", "num_classes": "1", "biases": "[1, 2, 3, 4]", "mask_group_num": "1", "mask": "[0, 1]",
        "anchors_scale": "8",
    },
}  # fmt: skip
BOTTOMS = {
    "Crop": "data data", "Eltwise": "data data", "PriorBox": "data data", "DetectionOutput": "loc conf priors",
    "LSTM": "steps marks", "RNN": "steps marks",
    "Proposal": "scores deltas image",
    "ROIPooling": "data rois", "PSROIPooling": "data rois", "RoiAlign": "data boxes images",
    "YoloDetectionOutput": "grid", "Yolov3DetectionOutput": "grid",
    "AnchoredDetectionOutput": "grid", "AnchorFreeDetectionOutput": "grid", "DecodedDetectionOutput": "cells",
}  # fmt: skip
INPUTS = {  # for bottoms that are not of DATA
    "loc conf priors": (
        'input: ["loc", "conf", "priors"] input_shape [{ dim: [1, 8] }, { dim: [1, 4] }, { dim: [1, 2, 8] }]\n'
    ),
    "data rois": 'input: ["data", "rois"] input_shape [{ dim: [1, 3, 8, 8] }, { dim: [2, 5] }]\n',
    "data boxes images": (
        'input: ["data", "boxes", "images"] input_shape [{ dim: [1, 3, 8, 8] }, { dim: [2, 4] }, { dim: [2] }]\n'
    ),
    "scores deltas image": (
        'input: ["scores", "deltas", "image"] '
        "input_shape [{ dim: [1, 4, 3, 5] }, { dim: [1, 8, 3, 5] }, { dim: [1, 3] }]\n"
    ),
    "steps marks": 'input: ["steps", "marks"] input_shape [{ dim: [4, 2, 3] }, { dim: [4, 2] }]\n',
    "cells": 'input: "cells" input_shape { dim: [1, 7, 21] }\n',
    "grid": 'input: "grid" input_shape { dim: [1, 12, 4, 4] }\n',
}
EXTREMES = [0, -1, 2**31 - 1]


def one_layer(type: str, message: str, values: dict[str, str], extra: str = "") -> str:
    """A network with one layer of the type, its parameters as given."""
    params = f"{message} {{ {' '.join(f'{n}: {v}' for n, v in values.items())} }} {extra}"
    if type in SOURCES:
        return layer("x", type, "", "x", params) + layer("r", "ReLU", "x", "r")
    bottoms = BOTTOMS.get(type, "data")
    return INPUTS.get(bottoms, DATA) + layer("x", type, bottoms, "x", params)


def integers(cls: type, message: str) -> Iterator[tuple[str, ...]]:
    """The integer fields of a Params class, with the names of the messages around them."""
    known = fields(message)
    for f in dataclass_fields(cls):
        kind = known[f.name]
        if kind.kind == "int":
            yield (f.name, "repeated" if kind.repeated else "")
        elif "nested" in f.metadata:
            for path in integers(f.metadata["nested"], kind.message):
                yield (f.name, *path)


def integer_fields() -> list[tuple[str, str, tuple[str, ...]]]:
    places = []
    for type in layers.types():
        cls = layers.find(type)
        assert cls is not None
        own = message_of(type)
        if own is not None and not cls.training_only:  # tests/layers/test_losses.py
            message = fields("LayerParameter")[own].message
            places += [(type, own, path) for path in integers(cls.Params, message)]
    return places


FIELDS = integer_fields()


def test_there_are_integer_fields() -> None:
    assert len(FIELDS) > 60


def test_the_base_networks_are_sound() -> None:
    """Otherwise the next test would only see refusals."""
    for type, message, _ in FIELDS:
        net = graph(one_layer(type, message, BASE.get(type, {})))
        if all(s is not None for s in net.inputs.values()):
            infer_shapes(net)


def positive_or_refused(text: str, custom: Any = None) -> None:
    try:
        net = graph(text, custom=custom)
        shapes = infer_shapes(net)
    except ChaiError as error:
        assert error.message.strip()
        return
    assert all(d > 0 for s in shapes.values() for d in s), text
    for v in net.layers:
        bottoms = tuple(shapes[b] for b in v.bottoms)
        assert v.source or all(d > 0 for s in v.weight_shapes(*bottoms) for d in s), text
        assert v.macs(bottoms, tuple(shapes[t] for t in v.tops if t in shapes)) >= 0


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize(("type", "message", "path"), FIELDS, ids=["-".join((t, *p[:-1])) for t, _, p in FIELDS])
def test_every_integer_field_at_its_extremes(type: str, message: str, path: tuple[str, ...], value: int) -> None:
    *outer, repeated = path
    lists = [f"[1, {value}]", f"[{value}, {value}]", f"[{value}, 1, {value}, 1]"]
    for text in [str(value), *(lists if repeated else [])]:
        for name in reversed(outer[1:]):
            text = f"{{ {name}: {text} }}"
        positive_or_refused(one_layer(type, message, {**BASE.get(type, {}), outer[0]: text}))
        positive_or_refused(one_layer(type, message, {outer[0]: text}))


@pytest.mark.parametrize("value", EXTREMES)
def test_integers_outside_the_layers_own_messages(value: int) -> None:
    for type, message in (
        ("Data", "data_param"),
        ("ImageData", "image_data_param"),
        ("WindowData", "window_data_param"),
    ):
        for sizes in (
            f"crop_size: {value}",
            f"crop_h: {value} crop_w: 3",
            f"resize_param {{ height: {value} width: 3 }}",
        ):
            positive_or_refused(one_layer(type, message, {}, f"transform_param {{ {sizes} }}"))
    for dims in (f"{value}", f"[1, {value}]", f"[{value}, 3]"):
        custom = layer("x", "mine", "data", "x", f"xcustom_param {{ top_dim: {dims} }}")
        positive_or_refused(DATA + custom, {"mine": print})
        positive_or_refused(f'input: "data" input_shape {{ dim: {dims} }}\n' + layer("r", "ReLU", "data", "r"))
    for name, kind in fields("PrecisionParameter").items():
        if kind.kind == "int":
            for message in ("precision_param", "quantization_param"):
                positive_or_refused(DATA + layer("x", "ReLU", "data", "x", f"{message} {{ {name}: {value} }}"))
    positive_or_refused(f'input: "data" input_dim: [1, 1, {value}, 4]\n' + layer("r", "ReLU", "data", "r"))


def test_transform_and_custom_integers_are_known() -> None:
    """If one of these grows an integer, the test above should hear of it."""
    names = {name for name, *_ in integers(Transform, "TransformationParameter")}
    assert names == {"crop_size", "crop_h", "crop_w", "resize_param"}
    assert [name for name, *_ in integers(CustomParams, "XCustomParameter")] == ["top_dim"]


# -- shapes of trouble


@pytest.mark.parametrize("opening", ["layer {", "layer { layer {", "layer <", "a: [{", "layers { layer {"])
def test_five_thousand_braces(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "n.prototxt"
    path.write_text(opening * 5000)
    with pytest.raises(ParseError, match="text_depth"):
        load_graph(path, Registry())


def test_a_thousand_layers_of_one_name() -> None:
    net = graph(DATA + layer("r", "ReLU", "data", "data") * 1000)
    assert [x.name for x in net.layers[1:]] == ["r", *(f"r ({i})" for i in range(2, 1001))]


def test_a_thousand_layers_in_place() -> None:
    net = graph(DATA + "".join(layer(f"r{i}", "ReLU", "data", "data") for i in range(1000)))
    assert len({t for v in net.layers for t in v.tops}) == 1001
    assert len(infer_shapes(net)) == 1001


def test_names_made_to_collide_with_blob_ids() -> None:
    text = DATA + "".join(layer(n, "ReLU", "data", "data") for n in ("r", "@", "r@r", "@@"))
    text += layer("z", "ReLU", "data", "data@r@r") + layer("r@r@r", "ReLU", "data", "data")
    net = graph(text)
    written = [t for v in net.layers for t in v.tops]
    assert len(set(written)) == len(written)


@pytest.mark.parametrize(
    "text",
    [
        layer("a", "ReLU", "x", "y") + layer("b", "ReLU", "y", "x"),
        layer("a", "ReLU", "x", "x"),
        DATA + layer("a", "Eltwise", "data y", "x") + layer("b", "ReLU", "x", "y"),
    ],
)
def test_cycles(text: str) -> None:
    with pytest.raises(ParseError, match="which no layer above writes"):
        graph(text)


@pytest.mark.parametrize("text", ['bottom: "a" ' * 5000, 'top: "a" ' * 5000, 'name: "' + "n" * 5000 + '"'])
def test_a_layer_that_is_too_large(text: str) -> None:
    with pytest.raises(ParseError, match="this layer is too large"):
        graph(DATA + f'layer {{ type: "Concat" {text} }}')


def test_an_input_beyond_memory_is_refused_before_any_is_taken() -> None:
    for dims in ("[2147483647]", "[1, 65535, 65535]", "[1, 3, 40000, 40000]", "[" + "1," * 32 + "1]"):
        with pytest.raises(ChaiError):
            infer_shapes(graph(f'input: "d" input_shape {{ dim: {dims} }} ' + layer("r", "ReLU", "d", "r")))
