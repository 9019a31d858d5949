"""Every Params dataclass against caffe.proto: names, repetition, defaults, and what is left out on purpose."""

from __future__ import annotations

from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from chai import layers
from chai.graph import Layer
from chai.graph.params import BlobShape, Filler, LossParams, MessageFields
from chai.graph.source import Transform
from chai.parser import schema
from chai.parser.assign import message_of

# What a layer has no use for, and why it may be ignored.
IGNORED = {
    "BatchNormParameter": {"moving_average_fraction"},  # training
    "ConvolutionParameter": {"engine", "force_nd_im2col"},  # which code runs, not what it computes
    "DetectionOutputParameter": {
        "save_output_param", "visualize", "visualize_threshold", "save_file",
    },  # writes files and draws; the top is the same
    "BNParameter": {"icnet"},  # saves memory
    "DenseImageDataParameter": {"source", "rand_skip", "shuffle", "mean_file", "root_folder", "mirror", "label_divide_factor"},
    "DummyDataParameter": {"data_filler"},  # the caller's data stand for it
    "EltwiseParameter": {"stable_prod_grad"},  # training
    "FillerParameter": {"sparse", "variance_norm"},  # random weights only
    "LRNParameter": {"engine"},
    "PoolingParameter": {"engine"},
    "RecurrentParameter": {"debug_info"},
    "ReLUParameter": {"engine"},
    "SoftmaxParameter": {"engine"},
    "SPPParameter": {"engine"},
    "YoloDetectionOutputParameter": {"side", "label_map_file"},  # the bottom has the side; names are not the layer's
    # data bases are never opened; scale, mean_file, crop_size and mirror are moved to transform_param
    "DataParameter": {
        "source", "scale", "mean_file", "crop_size", "mirror", "rand_skip", "backend", "force_encoded_color", "prefetch",
        "side", "random",  # training
    },
    "HDF5DataParameter": {"source", "shuffle"},
    "ImageDataParameter": {
        "source", "scale", "mean_file", "crop_size", "mirror", "rand_skip", "shuffle", "root_folder",
    },
    "WindowDataParameter": {
        "source", "scale", "mean_file", "crop_size", "mirror", "fg_threshold", "bg_threshold", "fg_fraction",
        "context_pad", "crop_mode", "cache_images", "root_folder",
    },
    "ResizeParameter": {  # how pixels are made up, not how many
        "prob", "resize_mode", "pad_mode", "pad_value", "interp_mode", "height_scale", "width_scale", "jitter",
    },
    "TransformationParameter": {
        "noise_param", "emit_constraint", "distort_param", "expand_param", "caffe_yolo",
    },  # training
}  # fmt: skip

# Scalars that are None until the file sets them: Caffe asks has_... there, or they stand against another field.
ASKED = {
    "AccuracyParameter": {"ignore_label"},
    "ArgMaxParameter": {"axis"},
    "BatchNormParameter": {"use_global_stats"},
    "ConcatParameter": {"concat_dim"},
    "ContinuationIndicatorParameter": {"time_step", "batch_size"},
    "ConvolutionParameter": {"pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w"},
    "BNParameter": {"momentum"},  # one of the fields that tell its two forks apart
    "ClipParameter": {"min", "max"},
    "DataParameter": {"batch_size"},
    "DenseImageDataParameter": {"batch_size"},
    "DepthToSpaceParameter": {"block_size"},
    "DetectionOutputParameter": {"confidence_threshold"},
    "HDF5DataParameter": {"batch_size"},
    "InterpParameter": {"height", "width", "zoom_factor", "shrink_factor", "full_zoom_factor"},
    "LocalParameter": {"kernel_size"},
    "LossParameter": {"ignore_label", "normalization", "normalize"},
    "NonMaximumSuppressionParameter": {"top_k"},
    "PoolingParameter": {"kernel_size", "kernel_h", "kernel_w", "stride_h", "stride_w"},
    "PriorBoxParameter": {"img_size", "img_h", "img_w", "step", "step_h", "step_w"},
    "PSROIPoolingParameter": {"spatial_scale", "output_dim", "group_size"},
    "ReorgParameter": {"stride"},
    "ResizeNearestNeighborParameter": {"output_height", "output_width"},
    "SliceParameter": {"slice_dim"},
    "TileParameter": {"tiles"},
    "UpsampleParameter": {"scale", "scale_h", "scale_w", "upsample_h", "upsample_w"},
    "WindowDataParameter": {"batch_size"},
}

# Types that have a message of their own in the schema and read nothing of it.
UNREAD = {
    "DetectionEvaluate", "HDF5Output",  # dropped
    "SegmentationEvaluate", "Yolov3", "YoloV3Loss", "YoloSeg",  # the same in forks
    "Sigmoid", "TanH",  # engine only
}  # fmt: skip


def read_by(cls: type[Layer]) -> str | None:
    """Return the ``*_param`` field that a type has parameters from; None if it reads none."""
    return None if cls.Params is MessageFields else message_of(cls.__name__)


def messages() -> dict[tuple[str, type], None]:
    """(message, dataclass) of every layer, and of the messages inside."""
    of_layers = schema.fields("LayerParameter")
    shared = {("TransformationParameter", Transform): None, ("LossParameter", LossParams): None}
    pairs: dict[tuple[str, type], None] = dict(shared)
    for name in layers.types():
        cls = layers.find(name)
        assert cls is not None
        if (own := read_by(cls)) is not None:
            pairs[of_layers[own].message, cls.Params] = None
    queue = list(pairs)
    while queue:
        message, params = queue.pop()
        for field in fields(params):
            if "nested" in field.metadata:
                inner = schema.fields(message)[field.name].message, field.metadata["nested"]
                if inner not in pairs:
                    pairs[inner] = None
                    queue.append(inner)
    return pairs


CASES = list(messages())
IDS = [f"{message}-{params.__name__}" for message, params in CASES]


@pytest.mark.parametrize(("message", "params"), CASES, ids=IDS)
def test_fields_are_the_schemas(message: str, params: type) -> None:
    known = schema.fields(message)
    for field in fields(params):
        assert field.name in known, f"{message} has no {field.name}"
        assert isinstance(field.default, tuple) == known[field.name].repeated, field.name
        assert ("nested" in field.metadata) == (known[field.name].kind == "message"), field.name


@pytest.mark.parametrize(("message", "params"), CASES, ids=IDS)
def test_defaults_are_caffes(message: str, params: type) -> None:
    known, unset = schema.fields(message), set()
    for field in fields(params):
        assert field.default is not MISSING, field.name
        if field.default is None and known[field.name].kind != "message":
            unset.add(field.name)
        else:
            default = caffes(message, known[field.name])
            assert same(field.default, default), f"{field.name}: {field.default}, {default}"
    assert unset == ASKED.get(message, set())


def caffes(message: str, field: schema.FieldType) -> Any:
    """The default of a field, as protobuf has it; enum values by name."""
    descriptor = schema.message_class(message).DESCRIPTOR.fields_by_name[field.name]
    if field.repeated or field.kind == "message":
        return () if field.repeated else None
    default = descriptor.default_value
    return descriptor.enum_type.values_by_number[default].name if field.kind == "enum" else default


def same(ours: Any, theirs: Any) -> bool:
    """Equal, floats as the schema rounds them."""
    return type(ours) is type(theirs) and (
        np.float32(ours) == np.float32(theirs) if isinstance(ours, float) else ours == theirs
    )


@pytest.mark.parametrize(("message", "params"), CASES, ids=IDS)
def test_nothing_is_ignored_unawares(message: str, params: type) -> None:
    missing = set(schema.fields(message)) - {f.name for f in fields(params)}
    assert missing == IGNORED.get(message, set())


@pytest.mark.parametrize(("message", "params"), CASES, ids=IDS)
def test_choices_are_values_of_the_enum(message: str, params: type) -> None:
    for field in fields(params):
        definition = schema.fields(message)[field.name]
        allowed = field.metadata.get("choice")
        assert (allowed is not None) == (definition.kind == "enum"), field.name
        if allowed is not None:
            assert set(allowed) <= set(definition.enum)
            assert field.default in (None, *allowed)


@pytest.mark.parametrize(("message", "params"), CASES, ids=IDS)
def test_defaults_lie_within_their_ranges(message: str, params: type) -> None:
    for field in fields(params):
        if "within" in field.metadata and field.default not in (None, ()):
            low, high = field.metadata["within"]
            assert low <= field.default <= high


def test_types_that_read_no_message() -> None:
    def plain(name: str) -> str:
        return name.lower().replace("_", "")

    own = {plain(f.removesuffix("_param")) for f in schema.fields("LayerParameter") if f.endswith("_param")}
    names = {n for n in layers.types() if read_by(layers.find(n)) is None and plain(n) in own}
    # multibox_loss_param, MultiBoxLoss: the same when read without underscores
    assert names == UNREAD | {"MultiBoxLoss"}


def test_shared_messages_are_the_ones_meant() -> None:
    read = {n: m for n in layers.types() if (m := read_by(layers.find(n)))}
    odd = {n: m for n, m in read.items() if m.removesuffix("_param").replace("_", "") != n.lower()}
    assert odd == {
        "AnnotatedData": "data_param",
        "Deconvolution": "convolution_param",
        "ConvolutionDepthwise": "convolution_param",
        "DepthwiseConvolution": "convolution_param",
        "Im2col": "convolution_param",
        "LSTM": "recurrent_param",
        "Normalize": "norm_param",
        "RNN": "recurrent_param",
        "SoftmaxWithLoss": "softmax_param",
    }


def test_the_messages_inside() -> None:
    assert {("BlobShape", BlobShape), ("FillerParameter", Filler)} <= set(CASES)
    assert any(message == "NonMaximumSuppressionParameter" for message, _ in CASES)


def test_families_are_what_their_files_define() -> None:
    """Each type that is listed is a layer there, with a line at the head of the file, which lists no others."""
    for stem, names in layers.FAMILIES.items():
        module = import_module(f"chai.layers.{stem}")
        heads = [line.partition(": ")[0] for line in (module.__doc__ or "").splitlines()[1:] if line]
        assert {*heads} == {*names.split()}, stem
        for name in names.split():
            assert issubclass(vars(module)[name], Layer) and vars(module)[name].__module__ == module.__name__
