"""For any bottoms: the shape rule refuses them, or forward writes what it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import chai
from chai import layers
from chai.graph import Layer
from chai.graph.source import SourceLayer
from chai.runtime.steps.layers import run_layer
from tests.conftest import examples

from .common import Shape, build

# (body, shapes that fit); the tops are as many as the body asks for
EXAMPLES: dict[str, list[tuple[str, list[Shape], int]]] = {
    "AbsVal": [("", [(2, 3)], 1)],
    "Add": [("", [(2, 3), (3,)], 1), ("", [(2, 1, 4), (3, 1)], 1), ("", [(2, 3), (2, 3)], 1)],
    "Axpy": [("", [(2, 3), (2, 3, 4), (2, 3, 4)], 1)],
    "BatchReindex": [("", [(1, 3, 4), (5,)], 1), ("", [(2, 3, 4), (2,)], 1)],
    "BN": [
        ("", [(2, 3, 4, 5)], 1),
        ("bn_param { bn_mode: INFERENCE }", [(2, 3, 4, 5)], 1),
        ("bn_param { frozen: true }", [(2, 3, 4, 5)], 1),
    ],
    "BNLL": [("", [(2, 3)], 1)],
    "Compare": [("", [(2, 3), (3,)], 1), ("compare_param { operation: EQUAL }", [(2, 1, 4), (3, 1)], 1)],
    "Clip": [("clip_param { min: 0 max: 1 }", [(2, 3)], 1)],
    "DepthToSpace": [
        ("depth_to_space_param { block_size: 2 }", [(2, 3, 5, 8)], 1),
        ('depth_to_space_param { block_size: 2 data_format: "CRD" }', [(2, 8, 3, 5)], 1),
    ],
    "Embed": [("embed_param { num_output: 3 input_dim: 1 }", [(2, 4)], 1)],
    "Erf": [("", [(2, 3)], 1)],
    "ContinuationIndicator": [
        ("continuation_indicator_param { time_step: 4 axis: -2 }", [(2, 3, 5)], 1),
        ("continuation_indicator_param { time_step: 4 }", [(2, 3, 5)], 1),
        ("continuation_indicator_param { time_step: 4 batch_size: 3 }", [], 1),
    ],
    "Exp": [("", [(2, 3)], 1)],
    "Filter": [("", [(2, 3), (2, 4), (2, 1)], 2)],
    "HardSwish": [("", [(2, 3)], 1)],
    "ICNetSubgraph": [("", [(1, 2, 33, 65)], 1)],
    "Im2col": [
        ("convolution_param { kernel_h: 3 kernel_w: 2 pad: 1 stride: 2 dilation: 2 }", [(2, 3, 5, 7)], 1),
        ("convolution_param { kernel_size: 2 pad_t: 3 pad_r: 1 }", [(2, 3, 5, 7)], 1),
    ],
    "Interp": [
        ("interp_param { zoom_factor: 2 pad_end: -1 }", [(2, 3, 4, 5)], 1),
        ("interp_param { height: 3 width: 7 }", [(2, 3, 4, 5)], 1),
        ("interp_param { shrink_factor: 2 }", [(2, 3, 4, 5)], 1),
    ],
    "LayerNorm": [("", [(2, 3, 4)], 1), *((f"layer_norm_param {{ axis: {a} }}", [(2, 3, 4)], 1) for a in (1, -3))],
    "Local": [("local_param { num_output: 3 kernel_size: 2 stride: 2 pad: 1 }", [(2, 3, 4, 5)], 1)],
    "Log": [("", [(2, 3)], 1)],
    "GridSample": [("", [(2, 3, 5, 7), (2, 4, 6, 2)], 1), ("", [(2, 3, 4, 5, 7), (2, 1, 2, 3, 3)], 1)],
    "MatMul": [
        ("", [(2, 3), (3, 5)], 1),
        ("", [(4, 2, 3), (3,)], 1),
        ("", [(3,), (2, 3, 5)], 1),
        ("", [(2, 4, 3), (2, 3, 5)], 1),
    ],
    "Mul": [("", [(2, 3), (3,)], 1)],
    "LSTM": [
        ("recurrent_param { num_output: 3 }", [(4, 2, 5), (4, 2), (2, 3)], 1),
        ("recurrent_param { num_output: 3 expose_hidden: true }", [(4, 2, 5), (4, 2), (1, 2, 3), (1, 2, 3)], 3),
    ],
    "MVN": [("", [(2, 3, 4, 5)], 1)],
    "Pad": [
        ("pad_param { paddings: 1 paddings: 0 paddings: 2 paddings: 3 }", [(2, 3)], 1),
        ("pad_param { paddings: [0, 0, 2, 3] }", [(2, 3)], 1),
    ],
    "Parameter": [("parameter_param { shape { dim: 2 dim: 3 } }", [], 1)],
    "Proposal": [
        ("proposal_param { ratio: 1 ratio: 2 scale: 3 }", [(1, 4, 3, 5), (1, 8, 3, 5), (1, 3)], 1),
        ("proposal_param { ratio: 1 scale: 3 post_nms_topn: 2 }", [(1, 2, 3, 5), (1, 4, 3, 5), (1, 4)], 2),
        ("proposal_param { ratio: 1 scale: 3 chai_python: true }", [(1, 2, 3, 5), (1, 4, 3, 5), (1, 6)], 2),
    ],
    "PSROIPooling": [
        ("psroi_pooling_param { output_dim: 3 group_size: 2 spatial_scale: 1 }", [(n, 12, 4, 5), (2, 5)], 1)
        for n in (1, 2)
    ],
    "Reduction": [("", [(2, 3)], 1), ("reduction_param { axis: -1 operation: MEAN }", [(2, 3)], 1)],
    "ReLU6": [("", [(2, 3)], 1)],
    "Reorg": [
        ("reorg_param { stride: 2 }", [(2, 8, 4, 6)], 1),
        ("reorg_param { stride: 2 reverse: true }", [(2, 8, 3, 5)], 1),
    ],
    "Resize": [
        ("resize_param { size: 0 size: 4 size: 2 mode: LINEAR }", [(2, 3, 5)], 1),
        ("resize_param { size: [3, 0, 0] mode: LINEAR }", [(2, 3, 5)], 1),
    ],
    "ResizeNearestNeighbor": [
        ("resize_nearest_neighbor_param { output_height: 3 scale_width: 1.5 }", [(2, 4, 5, 3)], 1),
        ('resize_nearest_neighbor_param { output_height: 3 scale_width: 1.5 data_format: "NCHW" }', [(2, 3, 4, 5)], 1),
    ],
    "RNN": [("recurrent_param { num_output: 3 expose_hidden: true }", [(4, 2, 5), (4, 2), (1, 2, 3)], 2)],
    "RoiAlign": [("roi_align_param { pooled_h: 2 pooled_w: 3 }", [(n, 3, 4, 5), (2, 4), (2,)], 1) for n in (1, 2)],
    "ROIPooling": [("roi_pooling_param { pooled_h: 2 pooled_w: 3 }", [(n, 3, 4, 5), (2, 5)], 1) for n in (1, 2)],
    "ShapeOf": [("", [(2, 3, 5)], 1)],
    "ShuffleChannel": [("shuffle_channel_param { group: 2 }", [(2, 4, 3)], 1)],
    "SPP": [
        ("spp_param { pyramid_height: 1 }", [(2, 3, 4, 5)], 1),
        ("spp_param { pyramid_height: 2 }", [(2, 3, 4, 6)], 1),
    ],
    "Squeeze": [("", [(2, 1, 3)], 1), ("squeeze_param { axis: 1 }", [(2, 1, 3, 1)], 1)],
    "Swish": [("", [(2, 3)], 1)],
    "Threshold": [("", [(2, 3)], 1)],
    "Tile": [("tile_param { tiles: 3 }", [(2, 3)], 1), ("tile_param { axis: 0 tiles: 3 }", [(2, 3)], 1)],
    "Where": [("", [(2, 3), (3,), (2, 1)], 1), ("", [(4,), (2, 1, 4), (3, 1)], 1)],
    "Upsample": [
        ("upsample_param { scale: 3 }", [(2, 3, 4, 5)], 1),
        ("upsample_param { scale: 2 pad_out_h: true }", [(2, 3, 4, 5), (2, 3, 4, 5)], 1),
    ],
    "UpsampleDarknet": [("upsample_darknet_param { stride: 2 }", [(2, 3, 4, 5)], 1)],
    "YoloDetectionOutput": [
        (
            "yolo_detection_output_param { num_box: 1 num_classes: 2 biases: 1 biases: 2 }",
            [(2, 7, 3, 3), (2, 7, 4, 4)],
            1,
        )
    ],
    "AnchoredDetectionOutput": [
        (
            "anchored_detection_output_param { anchor: [1, 2, 3, 4] stride: [8, 16] }",
            [(2, 7, 3, 3), (2, 7, 2, 2)],
            1,
        ),
        ("anchored_detection_output_param { anchor: [1, 2, 3, 4] stride: 8 }", [(2, 2, 3, 5, 8)], 1),
    ],
    "AnchorFreeDetectionOutput": [
        ("anchor_free_detection_output_param { reg_max: 2 }", [(2, 11, 3, 5), (2, 11, 2, 3)], 1),
        ("anchor_free_detection_output_param { reg_max: 2 }", [(2, 8, 3, 5), (2, 3, 3, 5)], 1),
        ("anchor_free_detection_output_param { reg_max: 1 stride: [8, 16] height: 16 width: 24 }", [(2, 7, 8)], 1),
    ],
    "DecodedDetectionOutput": [
        ("decoded_detection_output_param { height: 16 width: 24 }", [(2, 7, 8)], 1),
        (
            "decoded_detection_output_param { height: 16 width: 24 objectness: true channels_last: true }",
            [(2, 8, 7)],
            1,
        ),
    ],
    "Yolov3DetectionOutput": [
        (
            "yolov3_detection_output_param { num_box: 1 num_classes: 2 biases: 1 biases: 2 mask_group_num: 1 mask: 0 "
            "anchors_scale: 8 }",
            [(2, 7, 3, 3)],
            1,
        )
    ],
    "ArgMax": [("", [(2, 3)], 1), *((f"argmax_param {{ axis: {a} top_k: 2 }}", [(2, 3)], 1) for a in (-1, 0))],
    "BatchNorm": [
        ("batch_norm_param { scale_bias: true }", [(2, 3, 5)], 1),
        ("", [(2, 3, 5)], 1),
        ("batch_norm_param { use_global_stats: false }", [(2, 3, 5)], 1),
    ],
    "Bias": [("", [(2, 3)], 1), ("", [(2, 3, 5), (3, 5)], 1), ("bias_param { axis: -2 num_axes: -1 }", [(2, 3)], 1)],
    "Concat": [("", [(2, 3), (2, 5)], 1), ("concat_param { concat_dim: 0 }", [(2, 3), (2, 3)], 1)],
    "Convolution": [
        ("convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 pad: 1 stride: 2 }", [(2, 3, 5, 7)], 1),
        ("convolution_param { num_output: 4 kernel_size: 1 group: 2 }", [(2, 2, 5, 7), (2, 2, 5, 7)], 2),
        ("convolution_param { num_output: 4 kernel_size: 3 stride: 2 pad_b: 1 pad_l: 2 }", [(2, 3, 5, 7)], 1),
    ],
    "Crop": [
        ("crop_param { axis: 1 offset: 1 }", [(3, 4, 5), (3, 2, 1)], 1),
        ("crop_param { axis: 0 }", [(3, 4, 5), (2, 2, 1)], 1),
        ("crop_param { axis: 0 }", [(3, 4, 5), (3, 2, 1)], 1),
    ],
    "Deconvolution": [("convolution_param { num_output: 4 kernel_h: 3 kernel_w: 2 pad: 1 }", [(2, 3, 5, 7)], 1)],
    "DepthwiseConvolution": [("convolution_param { num_output: 3 group: 3 kernel_size: 2 pad: 1 }", [(2, 3, 4, 5)], 1)],
    "ConvolutionDepthwise": [("convolution_param { num_output: 3 kernel_size: 2 pad: 1 }", [(2, 3, 4, 5)], 1)],
    "DetectionOutput": [
        ("detection_output_param { num_classes: 3 code_type: CENTER_SIZE }", [(2, 8), (2, 6), (1, 2, 8)], 1),
        ("detection_output_param { num_classes: 2 share_location: false }", [(2, 16), (2, 4), (1, 2, 8)], 1),
        (
            "detection_output_param { num_classes: 2 no_permute: true nbottom: 1 }",
            [(2, 2, 1, 6), (2, 4, 2, 3), (1, 2, 24)],
            1,
        ),
    ],
    "Dropout": [("", [(2, 3)], 1)],
    "Eltwise": [("", [(2, 3), (2, 3)], 1), ("eltwise_param { operation: MAX }", [(2,), (2,), (2,)], 1)],
    "ELU": [("", [(2, 3)], 1)],
    "Flatten": [("", [(2, 3, 4)], 1), ("flatten_param { axis: 0 end_axis: 1 }", [(2, 3, 4)], 1)],
    "InnerProduct": [
        ("inner_product_param { num_output: 4 axis: -1 }", [(2, 3)], 1),
        ("inner_product_param { num_output: 2 axis: 0 }", [(2, 3)], 1),
    ],
    "LRN": [("", [(2, 3, 4, 5)], 1), ("lrn_param { norm_region: WITHIN_CHANNEL }", [(2, 3, 4, 5)], 1)],
    "Normalize": [("", [(2, 3, 4, 5)], 1), ("norm_param { channel_shared: false }", [(2, 3, 4, 5)], 1)],
    "Permute": [
        ("permute_param { order: 1 }", [(2, 3, 4)], 1),
        ("permute_param { order: 1 }", [(3, 3)], 1),
        ("permute_param { order: 0 order: 2 }", [(2, 3, 4)], 1),
    ],
    "Pooling": [
        ("pooling_param { kernel_size: 2 stride: 2 pad: 1 }", [(2, 3, 4, 5)], 1),
        ("pooling_param { global_pooling: true pool: AVE }", [(2, 3, 4, 5)], 1),
        ("pooling_param { kernel_size: 1 stride: 3 pool: AVE }", [(2, 3, 4, 5)], 1),
        ("pooling_param { kernel_size: 3 stride: 2 pool: AVE_EXC_PAD pad_t: 1 pad_r: 2 }", [(2, 3, 4, 5)], 1),
        ("pooling_param { kernel_size: 2 pool: STOCHASTIC }", [(2, 3, 4, 5)], 1),
        ("pooling_param { kernel_size: 2 }", [(2, 3, 4, 5)], 2),
    ],
    "Power": [("power_param { power: 2 }", [(2, 3)], 1)],
    "PReLU": [("", [(2, 3, 4)], 1), ("prelu_param { channel_shared: true }", [(2, 3)], 1)],
    "PriorBox": [("prior_box_param { min_size: 4 aspect_ratio: 2 }", [(2, 3, 4, 5), (2, 3, 40, 50)], 1)],
    "ReLU": [("", [(2, 3)], 1)],
    "Reshape": [
        ("reshape_param { shape { dim: 0 dim: -1 } }", [(2, 3, 4)], 1),
        ("reshape_param { shape { dim: -1 } axis: 1 num_axes: 1 }", [(2, 3, 4)], 1),
        ("reshape_param { shape { } }", [(1,)], 1),
        ("reshape_param { shape { dim: -1 dim: 3 } }", [(2, 3, 4)], 1),
        ("reshape_param { pixelshuffler: 2 }", [(2, 8, 3, 5)], 1),
    ],
    "Scale": [
        ("scale_param { bias_term: true }", [(2, 3)], 1),
        ("scale_param { axis: 0 bias_term: true }", [(2, 3, 4), (2, 3)], 1),
        ("scale_param { axis: 0 }", [(2, 3, 4), (2, 3)], 1),
        ("scale_param { axis: 0 num_axes: 0 }", [(2, 3)], 1),
    ],
    "Sigmoid": [("", [(2, 3)], 1)],
    "Silence": [("", [(2, 3), (4,)], 0)],
    "Slice": [
        ("", [(2, 4)], 2),
        ("slice_param { axis: -1 slice_point: 1 }", [(2, 3)], 2),
        ("slice_param { slice_dim: 0 }", [(2, 3)], 2),
    ],
    "Softmax": [("", [(2, 3)], 1), *((f"softmax_param {{ axis: {a} }}", [(2, 3)], 1) for a in (-1, -2))],
    "Split": [("", [(2, 3)], 2)],
    "TanH": [("", [(2, 3)], 1)],
}
Probes = dict[tuple[str, str], Layer]
CASES = [(type, *example) for type, examples in EXAMPLES.items() for example in examples]


def test_every_type_has_an_example() -> None:
    computing = {
        n for n in layers.types() if not layers.find(n).training_only and not issubclass(layers.find(n), SourceLayer)
    }
    assert set(EXAMPLES) == computing


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Probes:
    """The layer of each example, through the parser."""
    folder: Path = tmp_path_factory.mktemp("probes")
    return {
        (type, body): build(folder, type, body, shapes, tops).graph.layer("probe") for type, body, shapes, tops in CASES
    }


def outcome(layer: Layer, shapes: list[Shape]) -> str:
    """ "refused", or "agrees"; anything else is an error."""
    try:
        tops = layer.shapes(*shapes)
        weights = layer.weight_shapes(*shapes)
    except chai.ShapeError:
        return "refused"
    random = np.random.default_rng(0)
    layer.blobs = [random.uniform(0.5, 1, s).astype(np.float32) for s in weights]
    with np.errstate(all="ignore"):
        outputs = tuple(
            np.asarray(top, np.float32)
            for top in layer.forward(*(random.uniform(0, 1, s).astype(np.float32) for s in shapes))
        )
    assert len(outputs) == len(tops) == len(layer.tops)
    for array, top in zip(outputs, tops):
        assert array.dtype == np.float32
        assert layer.dynamic or array.shape == top
    assert layer.macs(tuple(shapes), tops) >= 0
    return "agrees"


@pytest.mark.parametrize(("type", "body", "shapes", "tops"), CASES)
def test_the_examples_agree(probes: Probes, type: str, body: str, shapes: list[Shape], tops: int) -> None:
    assert outcome(probes[type, body], shapes) == "agrees"


def halves_agree(layer: Layer, shapes: list[Shape]) -> bool:
    """Whether two passes of such batches, joined, have the tops of one pass with all their images, whatever is in it.

    Images are along the first axis of the first bottom with several axes, and of those that have an equal one.
    """
    batch = next((shape for shape in shapes if len(shape) > 1), shapes[0] if shapes else ())[:1]
    batched = [shape[:1] == batch != () for shape in shapes]
    whole = [(2 * shape[0], *shape[1:]) if many else shape for shape, many in zip(shapes, batched)]
    try:
        layer.shapes(*whole)
        weights = layer.weight_shapes(*whole)
    except chai.ShapeError:
        return False
    if weights != layer.weight_shapes(*shapes):
        return False
    random = np.random.default_rng(1)
    layer.blobs = [random.uniform(0.5, 1, shape).astype(np.float32) for shape in weights]
    # sorted, so that the corners of regions rise
    bottoms = [np.sort(random.uniform(0, 1, shape).astype(np.float32)) for shape in whole]
    parts = [
        layer.forward(*(bottom[half] if many else bottom for bottom, many in zip(bottoms, batched)))
        for half in (slice(None, *batch), slice(*batch, None))
    ]
    for top, *both in zip(layer.forward(*bottoms), *parts):
        joined = np.concatenate(both) if both[0].shape[:1] == batch else np.empty(0)
        independent = np.array_equal(*both) and np.array_equal(both[0], top)
        if not (independent or (joined.shape == top.shape and np.allclose(joined, top, 1e-5, 1e-6))):
            return False
    return True


@pytest.mark.parametrize(("type", "body", "shapes", "tops"), CASES)
def test_it_says_whether_it_mixes_images(probes: Probes, type: str, body: str, shapes: list[Shape], tops: int) -> None:
    layer = probes[type, body]
    assert (halves_agree(layer, shapes), layer.mixes_images(tuple(shapes))) in ((True, False), (False, True))


@st.composite
def near(draw: st.DrawFn, shapes: list[Shape]) -> list[Shape]:
    """Shapes like these with an axis more, less or of another size, or quite other ones."""
    variants = []
    for shape in shapes:
        new = list(shape)
        what = draw(st.sampled_from(["same", "same", "size", "more", "less", "other"]))
        if what == "other":
            new = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
        elif what == "size":
            new[draw(st.integers(0, len(new) - 1))] = draw(st.integers(1, 9))
        elif what == "more":
            new.insert(draw(st.integers(0, len(new))), draw(st.integers(1, 3)))
        elif what == "less" and len(new) > 1:
            new.pop(draw(st.integers(0, len(new) - 1)))
        variants.append(tuple(new))
    return variants


@pytest.mark.parametrize(("type", "body", "shapes", "tops"), CASES)
def test_other_shapes_are_refused_or_agree(
    probes: Probes, type: str, body: str, shapes: list[Shape], tops: int
) -> None:
    @settings(max_examples=examples(25))
    @given(near(shapes))
    def check(other: list[Shape]) -> None:
        assert outcome(probes[type, body], other) in ("refused", "agrees")

    check()


@pytest.mark.parametrize(("type", "body", "shapes", "tops"), CASES)
def test_scalars_are_refused_or_agree(probes: Probes, type: str, body: str, shapes: list[Shape], tops: int) -> None:
    """A blob without axes, as Reshape to ``shape { }`` makes it: first, last or everywhere."""
    for scalars in ([(), *shapes[1:]], [*shapes[:-1], ()], [()] * len(shapes)):
        assert outcome(probes[type, body], scalars) in ("refused", "agrees")


@pytest.mark.parametrize(("type", "body", "shapes", "tops"), CASES)
def test_no_rows_are_refused_or_agree(tmp_path: Path, type: str, body: str, shapes: list[Shape], tops: int) -> None:
    """As behind a Filter that picks none: of the first bottom, and of those with as many."""
    layer = build(tmp_path, type, body, shapes, tops).graph.layer("probe")
    fewer = [(0, *shape[1:]) if shape[:1] == shapes[0][:1] else shape for shape in shapes]
    planned = dict(zip((*layer.bottoms, *layer.tops), (*shapes, *layer.shapes(*shapes))))
    layer.blobs = [np.ones(shape, np.float32) for shape in layer.weight_shapes(*shapes)]
    try:
        outputs, _ = run_layer(layer, [np.ones(shape, np.float32) for shape in fewer], planned, 0.0)
    except (chai.ShapeError, chai.ModelError):
        return
    for array, top in zip(outputs, layer.shapes(*fewer), strict=True):
        assert array.dtype == np.float32 and (layer.dynamic or array.shape == top)
