"""caffe.io against values computed by hand, one pixel at a time."""

from __future__ import annotations

from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

import chai
import chai.pycaffe as caffe
from chai.env import env
from chai.limits import limits
from chai.parser.caffemodel import read_blob_file
from tests.conftest import examples
from tests.images.test_preprocess import naive_bilinear

RNG = np.random.default_rng(0)
IMAGE = RNG.random((5, 7, 3)).astype(np.float32)


def transformer(shape: tuple[int, ...] = (2, 3, 5, 7)) -> caffe.io.Transformer:
    t = caffe.io.Transformer({"data": shape})
    t.set_transpose("data", (2, 0, 1))
    return t


# -- Transformer


def test_every_step_in_caffes_order() -> None:
    """blob[k, y, x] = (image[y, x, swap[k]] * raw_scale - mean[k, y, x]) * input_scale"""
    mean = RNG.random((3, 5, 7)).astype(np.float32) * 100
    t = transformer()
    t.set_input_scale("data", 0.25)
    t.set_mean("data", mean)
    t.set_raw_scale("data", 255)
    t.set_channel_swap("data", (2, 0, 1))
    before = IMAGE.copy()
    item = t.preprocess("data", IMAGE)
    assert item.shape == (3, 5, 7)
    assert item.dtype == np.float32
    for k, y, x in np.ndindex(3, 5, 7):
        value = (float(IMAGE[y, x, (2, 0, 1)[k]]) * 255 - float(mean[k, y, x])) * 0.25
        assert item[k, y, x] == pytest.approx(value, rel=1e-5, abs=1e-5)
    assert np.array_equal(IMAGE, before)
    assert np.allclose(t.deprocess("data", item), IMAGE, atol=1e-5)
    assert np.array_equal(t.deprocess("data", item[None]), t.deprocess("data", item))


def test_steps_that_were_not_set_are_left_out() -> None:
    assert np.array_equal(caffe.io.Transformer({"data": (1, 5, 5, 7)}).preprocess("data", IMAGE), IMAGE)
    item = transformer().preprocess("data", IMAGE)
    assert all(item[k, y, x] == IMAGE[y, x, k] for k, y, x in np.ndindex(3, 5, 7))


def test_images_of_another_size_are_resized_first() -> None:
    t = transformer((1, 3, 4, 11))
    t.set_raw_scale("data", 10)
    assert np.allclose(t.preprocess("data", IMAGE), naive_bilinear(IMAGE, (4, 11)).transpose(2, 0, 1) * 10, atol=1e-5)


def test_gray_images_there_and_back() -> None:
    t = transformer((1, 1, 5, 7))
    t.set_mean("data", np.full((5, 7), 0.5))
    item = t.preprocess("data", IMAGE[..., :1])
    assert np.allclose(item[0], IMAGE[..., 0] - 0.5)
    assert np.allclose(t.deprocess("data", item[None]), IMAGE[..., :1])


def test_a_mean_per_channel() -> None:
    t = transformer()
    t.set_mean("data", np.array([1, 2, 3]))
    item = t.preprocess("data", IMAGE)
    for k in range(3):
        assert np.allclose(item[k], IMAGE[..., k] - (k + 1))


def test_a_mean_image_of_another_size_is_resized() -> None:
    mean = RNG.random((3, 9, 8)).astype(np.float32) * 255
    t = transformer()
    t.set_mean("data", mean)
    wanted = naive_bilinear(mean.transpose(1, 2, 0), (5, 7))
    assert np.allclose(t.preprocess("data", IMAGE), (IMAGE - wanted).transpose(2, 0, 1), atol=1e-4)


@pytest.mark.parametrize(
    ("step", "value", "words"),
    [
        ("set_transpose", (2, 0), r"transpose \(2, 0\): expected the axes 0 to 2"),
        ("set_transpose", (1, 2, 3), "transpose"),
        ("set_channel_swap", (2, 1, 0, 3), "expected the channels 0 to 2"),
        ("set_channel_swap", (0, 0, 1), r"channel_swap \(0, 0, 1\)"),
        ("set_mean", np.zeros(4), "a mean of 4x1x1 for input 'data' of 2x3x5x7"),
        ("set_mean", np.zeros((1, 3, 5, 7)), "a mean of 1x3x5x7 for input 'data'"),
        ("set_mean", np.zeros((5, 7)), "a mean of 1x5x7 for input 'data'"),
        ("set_mean", np.zeros((3, 0, 0)), "resize_image: expected an image"),
        ("set_mean", ["a", "b", "c"], "mean.*: expected numbers"),
        ("set_mean", [[1], [1, 2]], "mean.*: expected numbers"),
        ("set_transpose", None, "transpose None"),
        ("set_transpose", 3, "transpose 3"),
        ("set_transpose", (2.0, 0, 1), "transpose"),
        ("set_channel_swap", ("b", 1, 0), "channel_swap"),
        ("set_raw_scale", "255", "raw_scale.*: expected numbers"),
        ("set_input_scale", 1j, "input_scale.*: expected numbers"),
    ],
)
def test_settings_that_do_not_fit_the_input(step: str, value: object, words: str) -> None:
    with pytest.raises(chai.UsageError, match=words):
        getattr(transformer(), step)("data", value)


def test_every_step_asks_for_a_known_input() -> None:
    t = transformer()
    for step in (
        "set_transpose",
        "set_channel_swap",
        "set_mean",
        "set_raw_scale",
        "set_input_scale",
        "preprocess",
        "deprocess",
    ):
        with pytest.raises(chai.UsageError, match="'image' is not one of the inputs: data"):
            getattr(t, step)("image", None)
        with pytest.raises(chai.UsageError, match="is not one of the inputs: data"):
            getattr(t, step)(IMAGE, "data")


@pytest.mark.parametrize("inputs", [None, "data", ["data"], {"data": None}, {"data": np.zeros((1, 3, 5, 7))}], ids=str)
def test_what_are_no_shapes_of_inputs(inputs: Any) -> None:
    with pytest.raises(chai.UsageError, match=r"Transformer: expected shapes by name of input.*net\.blobs"):
        caffe.io.Transformer(inputs)


def test_sizes_of_scripts_for_python_2() -> None:
    assert caffe.io.Transformer({"data": (1, 3, 10 / 2, 7.0)}).preprocess("data", IMAGE).shape == (5, 7, 3)


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_an_image_of_other_channels(channels: int) -> None:
    t = transformer()
    t.set_channel_swap("data", (2, 1, 0))
    t.set_mean("data", np.ones(3))
    image = RNG.random((5, 7, channels))
    if channels == 4:  # as in Caffe, transparency is dropped
        assert t.preprocess("data", image).shape == (3, 5, 7)
    else:
        with pytest.raises(chai.UsageError, match=rf"input 'data' of 2x3x5x7: expected an image.*found 5x7x{channels}"):
            t.preprocess("data", image)
    with pytest.raises(chai.UsageError, match=rf"input 'data' of 2x3x5x7: expected an item.*found {channels}x5x7"):
        t.deprocess("data", image.transpose(2, 0, 1))


@pytest.mark.parametrize("image", [None, "a.png", IMAGE[..., 0], np.zeros((2, 5, 7, 3)), IMAGE * 1j], ids=str)
def test_what_is_no_image(image: Any) -> None:
    with pytest.raises(chai.UsageError, match=r"input 'data'|expected an image"):
        transformer().preprocess("data", image)
    with pytest.raises(chai.UsageError, match="input 'data'"):
        transformer().deprocess("data", image)


# -- images


def saved(folder: Path, pixels: np.ndarray) -> Path:
    path = folder / "image.png"
    Image.fromarray(pixels).save(path)
    return path


def test_pictures_are_rgb_from_0_to_1(tmp_path: Path) -> None:
    rgb = RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    image = caffe.io.load_image(str(saved(tmp_path, rgb)))
    assert image.dtype == np.float32
    assert image.shape == (5, 7, 3)
    assert all(image[i] == np.float32(int(rgb[i]) / 255) for i in np.ndindex(5, 7, 3))
    alpha = np.dstack([rgb, RNG.integers(0, 256, (5, 7), dtype=np.uint8)])
    assert np.array_equal(caffe.io.load_image(saved(tmp_path, alpha)), image)
    gray = caffe.io.load_image(saved(tmp_path, rgb), color=False)
    for y, x in np.ndindex(5, 7):
        r, g, b = (int(v) / 255 for v in rgb[y, x])
        assert gray[y, x].tolist() == pytest.approx([0.2125 * r + 0.7154 * g + 0.0721 * b], abs=1e-6)


def test_gray_pictures_have_three_equal_channels_or_one(tmp_path: Path) -> None:
    levels = np.arange(35, dtype=np.uint8).reshape(5, 7) * 7
    path = saved(tmp_path, levels)
    image = caffe.io.load_image(path)
    assert all(image[y, x].tolist() == [np.float32(int(levels[y, x]) / 255)] * 3 for y, x in np.ndindex(5, 7))
    assert np.array_equal(caffe.io.load_image(path, color=False), image[..., :1])


def test_what_is_no_picture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"nothing")
    with pytest.raises(chai.ParseError, match="this is no readable image"):
        caffe.io.load_image(tmp_path / "a.jpg")
    with pytest.raises(FileNotFoundError):
        caffe.io.load_image(tmp_path / "none.jpg")


def test_a_picture_may_be_an_open_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As open_nsfw's classify_nsfw.py, which makes a JPEG in memory."""
    path = saved(tmp_path, RNG.integers(0, 256, (5, 7, 3), dtype=np.uint8))
    image = caffe.io.load_image(path)
    assert np.array_equal(caffe.io.load_image(BytesIO(path.read_bytes())), image)
    with path.open("rb") as file:
        assert np.array_equal(caffe.io.load_image(file), image)
    with pytest.raises(chai.ParseError, match="this is no readable image"):
        caffe.io.load_image(BytesIO(b"nothing"))
    for wrong in (None, 3, StringIO("nothing"), b"nothing"):
        with pytest.raises(chai.UsageError, match=r"load_image: expected a file, found .*BytesIO"):
            caffe.io.load_image(wrong)  # type: ignore[arg-type]
    monkeypatch.setenv("CHAI_LIMITS", "image_bytes=50")
    env.cache_clear()
    limits.cache_clear()
    with pytest.raises(chai.ParseError, match="51 exceeds the limit image_bytes=50"):
        caffe.io.load_image(BytesIO(path.read_bytes()))


def test_resize_is_scikit_images() -> None:
    """Half of the size is the mean of squares, where pixels have their centres at halves."""
    pixels = RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    squares = pixels.reshape(2, 2, 3, 2, 3).astype(np.float64).mean((1, 3))
    for shape in ((2, 3), [2, 3, 3]):
        np.testing.assert_allclose(caffe.io.resize(pixels, shape), squares / 255, atol=1e-6)
    floats = (pixels / 255).astype(np.float32)
    np.testing.assert_allclose(caffe.io.resize(floats, (2, 3, 3), mode="constant", cval=0), squares / 255, atol=1e-6)
    np.testing.assert_allclose(caffe.io.resize(pixels, (2, 3), preserve_range=True), squares, atol=1e-4)
    flat = caffe.io.resize(floats[..., 1], (2, 3))
    np.testing.assert_allclose(flat, squares[..., 1] / 255, atol=1e-6)
    assert np.array_equal(caffe.io.resize(floats[..., 1], (2, 3, 1)), flat[..., None])
    for shape, words in (((3, 2, 3, 3), "channels"), ((3, 4, 6), "channels"), (3, "expected height and width")):
        with pytest.raises(chai.UsageError, match=words):
            caffe.io.resize(floats, shape)
    with pytest.raises(chai.UsageError, match="interp_order 3"):
        caffe.io.resize(floats, (2, 3), 3)
    assert np.array_equal(caffe.io.resize(floats, (2, 3), anti_aliasing=False), caffe.io.resize(floats, (2, 3)))
    with pytest.raises(chai.UsageError, match="resize has no option anti_aliasing=True"):
        caffe.io.resize(floats, (2, 3), anti_aliasing=True)


@settings(max_examples=examples(30))
@given(st.tuples(*[st.integers(1, 13)] * 2), st.tuples(*[st.integers(1, 13)] * 2), st.integers(1, 4))
def test_resizing(old: tuple[int, int], new: tuple[int, int], channels: int) -> None:
    image = np.random.default_rng(sum(old)).standard_normal((*old, channels)).astype(np.float32)
    resized = caffe.io.resize_image(image, new)
    assert resized.dtype == np.float32
    assert np.allclose(resized, naive_bilinear(image, new), atol=1e-5)
    if old == new:
        assert np.array_equal(resized, image)
    assert not np.shares_memory(resized, image)


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(chai.UsageError, match="interp_order 3: chai interpolates linearly"):
        caffe.io.resize_image(IMAGE, (3, 3), interp_order=3)
    for image in (IMAGE[0], IMAGE[:0], None, "a.png"):
        with pytest.raises(chai.UsageError, match=r"expected an image|image.*: expected numbers"):
            caffe.io.resize_image(image, (3, 3))
    for size in ((3,), (0, 3), 3, None, ("a", 3), (3, 3, 3)):
        with pytest.raises(chai.UsageError, match=r"resize_image .*: expected height and width in pixels"):
            caffe.io.resize_image(IMAGE, size)


def test_ten_crops_of_each_image() -> None:
    """8x11 images, 3x4 crops: corners at rows 0 and 5, columns 0 and 7; the centre begins at (8 - 3) / 2 and (11 - 4) / 2."""
    images = RNG.random((2, 8, 11, 2)).astype(np.float32)
    crops = caffe.io.oversample(images, (3, 4))
    assert crops.shape == (20, 3, 4, 2)
    assert crops.dtype == np.float32
    places = [(0, 0), (0, 7), (5, 0), (5, 7), (2, 3)]
    for n in range(2):
        for i, (top, left) in enumerate(places):
            for y, x, k in np.ndindex(3, 4, 2):
                assert crops[10 * n + i, y, x, k] == images[n, top + y, left + x, k]
                assert crops[10 * n + 5 + i, y, x, k] == images[n, top + y, left + 3 - x, k]
    with pytest.raises(chai.UsageError, match="crops of 9x4 from images of 8x11"):
        caffe.io.oversample(images, (9, 4))
    for none in ([], images[:0]):
        with pytest.raises(chai.UsageError, match="oversample: there is no image"):
            caffe.io.oversample(none, (3, 4))
    for sizes in (None, 3, (3,), (-3, 4), (0, 4)):
        with pytest.raises(chai.UsageError, match=r"oversample .*: expected height and width"):
            caffe.io.oversample(images, sizes)
    for wrong in ([images[0], images[1][:7]], None, ["a"], [3]):
        with pytest.raises(chai.UsageError, match=r"expected (images|numbers)"):
            caffe.io.oversample(wrong, (3, 4))


# -- messages


def test_arrays_and_blobprotos() -> None:
    array = RNG.standard_normal((2, 3, 5, 7)).astype(np.float32)
    blob = caffe.io.array_to_blobproto(array, diff=-array)
    assert list(blob.shape.dim) == [2, 3, 5, 7]
    assert np.array_equal(caffe.io.blobproto_to_array(blob), array)
    assert np.array_equal(caffe.io.blobproto_to_array(blob, return_diff=True), -array)
    old = caffe.proto.caffe_pb2.BlobProto(num=1, channels=2, height=3, width=5, data=range(30))
    assert np.array_equal(caffe.io.blobproto_to_array(old), np.arange(30).reshape(1, 2, 3, 5))
    text = caffe.io.arraylist_to_blobprotovector_str([array, array[0, 0]])
    assert [a.shape for a in caffe.io.blobprotovector_str_to_arraylist(text)] == [(2, 3, 5, 7), (5, 7)]
    assert np.array_equal(caffe.io.blobprotovector_str_to_arraylist(text)[0], array)


def test_a_mean_file_the_way_scripts_read_it(tmp_path: Path) -> None:
    mean = RNG.random((3, 5, 7)).astype(np.float32)
    path = tmp_path / "mean.binaryproto"
    path.write_bytes(caffe.io.array_to_blobproto(mean[None]).SerializeToString())
    blob = caffe.proto.caffe_pb2.BlobProto()
    blob.ParseFromString(path.read_bytes())
    assert np.array_equal(np.array(caffe.io.blobproto_to_array(blob))[0], mean)
    assert np.array_equal(read_blob_file(path)[0], mean)


def test_arrays_and_datums() -> None:
    for array in (RNG.integers(0, 256, (2, 3, 5), dtype=np.uint8), RNG.random((2, 3, 5)).astype(np.float32)):
        datum = caffe.proto.caffe_pb2.Datum.FromString(caffe.io.array_to_datum(array, 7).SerializeToString())
        assert datum.label == 7
        assert bool(datum.data) == (array.dtype == np.uint8)
        assert np.array_equal(caffe.io.datum_to_array(datum), array)
    with pytest.raises(chai.UsageError, match=r"expected \(C, H, W\), found 2x3"):
        caffe.io.array_to_datum(np.zeros((2, 3)))
    assert np.array_equal(caffe.io.datum_to_array(caffe.io.array_to_datum([[[1.5, 2.5]]])), [[[1.5, 2.5]]])
    file = caffe.proto.caffe_pb2.Datum(channels=2, height=3, width=5, data=b"a picture", encoded=True)
    with pytest.raises(chai.UsageError, match="this Datum holds an image file"):
        caffe.io.datum_to_array(file)


def test_messages_are_protobufs_own(tmp_path: Path) -> None:
    from google.protobuf import text_format

    from chai.pycaffe.proto import caffe_pb2

    net = caffe_pb2.NetParameter()
    text = """
    name: "tiny" input: "data" input_shape { dim: 2 dim: 3 dim: 5 dim: 7 }
    layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE kernel_size: 2 } }
    """
    assert text_format.Merge(text, net) is net
    assert [(layer.name, layer.type) for layer in net.layer] == [("pool", "Pooling")]
    assert net.layer[0].pooling_param.pool == caffe_pb2.PoolingParameter.AVE
    net.layer[0].pooling_param.pool = caffe_pb2.PoolingParameter.MAX
    net.state.phase = caffe_pb2.TEST
    assert (caffe_pb2.TRAIN, caffe_pb2.TEST) == (caffe.TRAIN, caffe.TEST)
    net.layer.add(name="abs", type="AbsVal", bottom=["pool"], top=["abs"])
    (tmp_path / "net.prototxt").write_text(text_format.MessageToString(net))
    x = RNG.standard_normal((2, 3, 5, 7)).astype(np.float32)
    network = caffe.Net(tmp_path / "net.prototxt", caffe.TEST)
    assert network.forward(data=x)["abs"][1, 2, 0, 3] == np.abs(x[1, 2, :2, 3:5].max())
    assert caffe_pb2.NetParameter is caffe_pb2.NetParameter
    with pytest.raises(AttributeError, match="no message or enum value 'NetParam'"):
        _ = caffe_pb2.NetParam


def test_a_solver_is_read_and_written() -> None:
    """As scripts do that look for the network of a solver, or write one."""
    from google.protobuf import text_format

    from chai.pycaffe.proto import caffe_pb2

    text = """
    net: "train_val.prototxt" test_iter: 100 test_iter: 50 test_interval: 500 test_state { stage: "a" } test_state { level: 2 }
    base_lr: 0.01 lr_policy: "multistep" stepvalue: [10, 20] momentum: 0.9 solver_mode: CPU type: "Adam"
    snapshot_prefix: "out/net" snapshot_format: HDF5 eval_type: "detection" ap_version: "11point"
    """
    solver = text_format.Parse(text, caffe_pb2.SolverParameter())
    assert (solver.net, list(solver.test_iter), list(solver.stepvalue)) == ("train_val.prototxt", [100, 50], [10, 20])
    assert solver.test_state[0].stage == ["a"]
    assert solver.solver_mode == caffe_pb2.SolverParameter.CPU
    assert caffe_pb2.SolverParameter().solver_mode == caffe_pb2.SolverParameter.SolverMode.Value("GPU")
    assert solver.weight_decay == 0
    assert not solver.HasField("weight_decay")
    assert solver.momentum2 == pytest.approx(0.999)
    solver.net_param.layer.add(name="abs", type="AbsVal")
    assert text_format.Parse(text_format.MessageToString(solver), caffe_pb2.SolverParameter()) == solver
    state = caffe_pb2.SolverState(iter=3, learned_net="net.caffemodel")
    assert caffe_pb2.SolverState.FromString(state.SerializeToString()).iter == 3


def test_enums_and_the_descriptor_are_those_of_generated_code() -> None:
    """As SSD's model_libs.py, with Phase.Value("TRAIN"), and scripts that walk over the messages of the schema."""
    from chai.pycaffe.proto import caffe_pb2

    assert [caffe_pb2.Phase.Value(name) for name in ("TRAIN", "TEST")] == [0, 1] == [caffe.TRAIN, caffe.TEST]
    assert (caffe_pb2.Phase.Name(1), dict(caffe_pb2.Phase.items())) == ("TEST", {"TRAIN": 0, "TEST": 1})
    assert caffe_pb2.Phase.DESCRIPTOR.values_by_name["TEST"].number == 1
    assert {"NetParameter", "BlobProto"} <= set(caffe_pb2.DESCRIPTOR.message_types_by_name)
    for name in ("Phases", "_PHASE", "__path__"):
        with pytest.raises(AttributeError):
            getattr(caffe_pb2, name)


def test_messages_of_layers_that_only_train() -> None:
    """A training prototxt of Faster R-CNN or R-FCN, which programs that merge layers read as a message."""
    from google.protobuf import text_format

    from chai.pycaffe.proto import caffe_pb2

    text = """
    layer { name: "loss_bbox" type: "SmoothL1Loss" smooth_l1_loss_param { sigma: 3.0 } }
    layer { name: "ohem" type: "BoxAnnotatorOHEM" box_annotator_ohem_param { roi_per_img: 128 } }
    layer { name: "drop6" type: "Dropout" dropout_param { scale_train: false } }
    """
    loss, ohem, drop = text_format.Merge(text, caffe_pb2.NetParameter()).layer
    assert (loss.smooth_l1_loss_param.sigma, ohem.smooth_l1_loss_param.sigma) == (3, 1)
    assert (ohem.box_annotator_ohem_param.roi_per_img, ohem.box_annotator_ohem_param.ignore_label) == (128, -1)
    assert (drop.dropout_param.scale_train, loss.dropout_param.scale_train) == (False, True)
