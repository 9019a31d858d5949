"""Pictures as bytes on their way into a network: the same codes and numbers as from a float blob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import Pictures, Preprocess, UsageError
from chai.artifact.save import save
from chai.env import env
from chai.images.pictures import stacked
from chai.runtime.perf import StepTime
from chai.zoo.card import Card
from tests.passes.common import CONV, network

RNG = np.random.default_rng(3)
SHAPE = (2, 3, 5, 7)
BYTES = RNG.integers(0, 256, (2, 5, 7, 3), dtype=np.uint8)
IMAGE = RNG.uniform(0, 200, (3, 6, 9)).astype(np.float32)  # a mean image larger than the input
LINES = f"c1 Convolution data -> c1 : {CONV}\nout Softmax c1 -> out"
READ_TWICE = f"c1 Convolution data -> c1 : {CONV}\nexp Exp data -> exp : exp_param {{ scale: 0.01 }}"
WAYS = {
    "nothing": Preprocess(),
    "BGR": Preprocess(channels="BGR", mean=(104.0, 117.0, 123.0)),
    "RGB": Preprocess(channels="RGB", mean=(104.0, 117.0, 123.0), scale=0.017),
    "all": Preprocess(channels="BGR", raw_scale=1.0, mean=(0.485, 0.456, 0.406), scale=4.3),
    "one mean": Preprocess(mean=127.5, scale=1 / 128),
    "an array": Preprocess(mean=np.float32([1, 2, 3])),
    "scales": Preprocess(channels="RGB", mean=(123.675, 116.28, 103.53), scale=(0.017, 0.0175, 0.0181)),
}
IMAGES = {"an image": Preprocess(mean=IMAGE), "an image of one pixel": Preprocess(mean=IMAGE[:, :5, :7], scale=0.5)}


def naive(pixels: np.ndarray, how: Preprocess) -> np.ndarray:
    """The input blob, number by number, each step in float32."""
    n, h, w = pixels.shape[:3]
    channels = 1 if pixels.ndim == 3 else 3
    out = np.zeros((n, channels, h, w), np.float32)
    mean, scale = np.asarray(how.mean, np.float32), np.atleast_1d(np.float32(how.scale))
    for i, c, y, x in np.ndindex(out.shape):
        value = np.float32(pixels[i, y, x] if channels == 1 else pixels[i, y, x, c if how.channels == "RGB" else 2 - c])
        value = np.float32(value * np.float32(how.raw_scale / 255))
        if mean.ndim == 3:
            value -= mean[c, y + (mean.shape[1] - h) // 2, x + (mean.shape[2] - w) // 2]
        elif mean.size:
            value -= mean.reshape(-1)[c % mean.size]
        out[i, c, y, x] = np.float32(value * scale[c % scale.size])
    return out


def net_of(
    folder: Path, how: Preprocess, lines: str = LINES, shape: tuple[int, ...] = SHAPE, **options: Any
) -> chai.Net:
    net = network(folder, lines, shape, **{"device": "emulator", **options})
    vars(net._source)["card"] = Card(preprocess=replace(how, chosen=True))
    return net


class Forbidden(Exception):
    """A float blob was made."""


def no_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    def made(self: Pictures) -> np.ndarray:
        raise Forbidden

    monkeypatch.setattr(Pictures, "floats", made)


def packs(net: chai.Net) -> list[StepTime]:
    return [step for step in net.perf.steps if step.type == "Pack"]


def same(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("how", [*WAYS.values(), *IMAGES.values()], ids=[*WAYS, *IMAGES])
def test_floats_are_those_of_single_numbers(how: Preprocess) -> None:
    floats = Pictures(BYTES, how).floats()
    assert floats.dtype == np.float32
    assert floats.shape == SHAPE
    assert np.array_equal(floats, naive(BYTES, how))


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_packing_bytes_gives_the_bits_of_packing_floats(
    tmp_path: Path, how: Preprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In forward by position and by name, and in a stream, without a float blob; Pack has its row."""
    net = net_of(tmp_path, how)
    floats = naive(BYTES, how)
    net.calibrate(floats * np.float32(0.4))  # so that some codes are saturated
    wanted, counted = net.forward(floats), (net.perf.converted, net.perf.saturated)
    assert counted[1] > 0
    no_floats(monkeypatch)
    assert same(net.forward(Pictures(BYTES)), wanted)
    assert net.partition.engine("c1") == "fpga"
    assert [row.name for row in packs(net)] == ["Pack data"]
    assert (net.perf.converted, net.perf.saturated) == counted
    assert same(net.forward(data=Pictures(BYTES)), wanted)
    assert same(net.forward({"data": Pictures(BYTES)}), wanted)
    batches = [np.roll(BYTES, i, 2) for i in range(5)]
    alone = [net.forward(Pictures(batch)) for batch in batches]
    assert not same(alone[0], alone[1])
    assert all(map(same, net.stream(map(Pictures, batches)), alone))


def test_the_bytes_of_a_pass(tmp_path: Path) -> None:
    """Each pass tells its own, whatever the one before was fed with."""
    net = net_of(
        tmp_path, WAYS["BGR"], "c1 Convolution data -> c1 : convolution_param { num_output: 1 kernel_size: 3 }"
    )
    net.calibrate(Pictures(BYTES))
    floats, size = naive(BYTES, WAYS["BGR"]), BYTES.size
    for feed, each in ((floats, 4), (Pictures(BYTES), 1), (floats, 4), (Pictures(BYTES), 1)):
        net.forward(feed)
        assert net.perf.peak_bytes == each * size + packs(net)[0].bytes  # the input and its codes
        assert net.perf.blob_bytes == each * size + sum(step.bytes for step in net.perf.steps)


def test_a_stream_copies_the_bytes(tmp_path: Path) -> None:
    net = net_of(tmp_path, WAYS["BGR"])
    net.calibrate(Pictures(BYTES))
    batches = [np.roll(BYTES, i, 2) for i in range(5)]
    wanted = [net.forward(Pictures(batch)) for batch in batches]
    array = np.empty_like(BYTES)

    def written() -> Any:
        for batch in batches:
            array[...] = batch
            yield Pictures(array)

    assert all(map(same, net.stream(written()), wanted))


@pytest.mark.parametrize("device", ["emulator", "float", "null", pytest.param("rtlsim", marks=pytest.mark.slow)])
@pytest.mark.parametrize("reason", ["mean image", "kept", "read twice", "codes alone"])
def test_the_same_answers_wherever_floats_are_needed(
    tmp_path: Path, device: str, reason: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if device == "rtlsim":
        pytest.importorskip("amaranth")
        monkeypatch.setenv("CHAI_CACHE", str(request.config.cache.mkdir("chai-rtl")))  # as in tests/rtl
        env.cache_clear()
    how = IMAGES["an image"] if reason == "mean image" else WAYS["all"]
    lines = READ_TWICE if reason == "read twice" else LINES
    net = net_of(tmp_path, how, lines, device=device, **{"keep": "all"} if reason == "kept" else {})
    floats = naive(BYTES, how)
    if net.overlay is not None:
        net.calibrate(floats)
    wanted = net.forward(floats)
    assert same(net.forward(Pictures(BYTES)), wanted) or device == "null"
    if reason == "kept":
        assert np.array_equal(net.blobs["data"].data, floats)
    no_floats(monkeypatch)
    if reason == "codes alone" and device != "float":
        net.forward(Pictures(BYTES))
    else:
        with pytest.raises(Forbidden):
            net.forward(Pictures(BYTES))


@pytest.mark.parametrize("how", [WAYS["BGR"], IMAGES["an image"]], ids=["numbers", "image"])
def test_calibration_on_bytes_measures_their_numbers(tmp_path: Path, how: Preprocess) -> None:
    """Asked for, over several batches, or by the first pass."""
    net = net_of(tmp_path, how)
    for inputs in (BYTES, BYTES // 3):
        net.calibrate(naive(inputs, how))
        wanted = net.formats
        net.calibrate(Pictures(inputs))
        assert net.formats == wanted
        net.calibrate(iter([Pictures(inputs[:1]), {"data": Pictures(inputs[1:])}]))
        assert net.formats == wanted
    first = net_of(tmp_path, how)
    out = first.forward(Pictures(BYTES // 3))
    assert first.formats == wanted
    assert same(out, net.forward(Pictures(BYTES // 3)))


def test_gray_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = Preprocess(scale=1 / 256, mean=33.0)
    net = net_of(tmp_path, how, shape=(2, 1, 5, 7))
    floats = naive(BYTES[..., 1], how)
    net.calibrate(floats)
    wanted = net.forward(floats)
    no_floats(monkeypatch)
    assert same(net.forward(Pictures(BYTES[..., 1])), wanted)  # not contiguous
    assert same(net.forward(Pictures(BYTES[..., 0])), wanted) is False


@pytest.mark.parametrize("count", [1, 3, 4, 5])
@pytest.mark.parametrize("how", [WAYS["BGR"], IMAGES["an image"]], ids=["numbers", "image"])
def test_a_compiled_network_takes_any_number(
    tmp_path: Path, how: Preprocess, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Split and padded to its batch of 2, in forward and in a stream, by the preprocessing in the file."""
    net = net_of(tmp_path, how)
    net.calibrate(Pictures(BYTES))
    save(net, tmp_path / "net.chai", Card(preprocess=replace(how, chosen=True)))
    pixels = RNG.integers(0, 256, (count, 5, 7, 3), dtype=np.uint8)
    with chai.Net(tmp_path / "net.chai") as compiled:
        wanted = compiled.forward(naive(pixels, how))
        assert compiled.batch == 2
        if how.by_byte(3):
            no_floats(monkeypatch)
        assert same(compiled.forward(Pictures(pixels)), wanted)
        assert all(same(out, wanted) for out in compiled.stream([Pictures(pixels)] * 5))


def test_a_transform_of_a_training_net_is_used(tmp_path: Path) -> None:
    text = """layer { name: "data" type: "Data" top: "data" transform_param {
        mean_value: 11 mean_value: 22 mean_value: 33 scale: 0.5 crop_size: 5 } data_param { batch_size: 2 } }
        layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 4 kernel_size: 3 } }"""
    (tmp_path / "net.prototxt").write_text(text)
    net = chai.Net(tmp_path / "net.prototxt", device="emulator", shapes={"data": (2, 3, 5, 5)})
    pixels = BYTES[:, :, :5]
    wanted = net.forward(naive(pixels, Preprocess(mean=(11, 22, 33), scale=0.5)))
    assert same(net.forward(Pictures(pixels)), wanted)


def test_pictures_bring_a_preprocess_of_their_own(tmp_path: Path) -> None:
    net = net_of(tmp_path, WAYS["BGR"])
    net.calibrate(Pictures(BYTES))
    assert same(net.forward(Pictures(BYTES, WAYS["RGB"])), net.forward(naive(BYTES, WAYS["RGB"])))


def test_a_plain_array_of_bytes_is_its_numbers(tmp_path: Path) -> None:
    net = net_of(tmp_path, WAYS["BGR"])
    array = np.ascontiguousarray(BYTES.transpose(0, 3, 1, 2))
    wanted = net.forward(array.astype(np.float32))
    assert same(net.forward(array), wanted)


def test_a_network_reads_pictures_as_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``net.pictures`` and ``net.preprocess`` are two forms of one batch."""
    net = net_of(tmp_path, replace(WAYS["all"], resize=(9, 11)))
    for i in range(2):
        Image.fromarray(RNG.integers(0, 256, (17 + i, 13, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
    files = [tmp_path / "0.png", Image.open(tmp_path / "1.png")]
    pictures = net.pictures(files)
    assert pictures.pixels.dtype == np.uint8
    assert pictures.shape == SHAPE
    assert np.array_equal(pictures.floats(), net.preprocess(files))
    wanted = net.forward(net.preprocess(files))
    no_floats(monkeypatch)
    assert same(net.forward(pictures), wanted)
    assert repr(pictures) == "<chai.Pictures 2x3x5x7>"
    with pytest.raises(UsageError, match="there is no picture"):
        net.pictures([])


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        ("cat.png", "expected a list of pictures, found cat.png"),
        ([None], "expected a picture or its file, found NoneType"),
        (np.zeros((2, 5, 7, 3), np.uint8), "expected a picture or its file, found ndarray"),
    ],
)
def test_what_is_no_list_of_pictures(tmp_path: Path, pictures: Any, words: str) -> None:
    with pytest.raises(UsageError, match=f"preprocess: {words}"):
        net_of(tmp_path, replace(WAYS["all"], resize=(9, 11))).preprocess(pictures)


@pytest.mark.parametrize(
    ("array", "words", "hint"),
    [
        (np.zeros((2, 5, 7, 3), np.float32), "pictures of float32: expected bytes", "preprocessed already"),
        (np.zeros((2, 5, 7, 3), np.int64), "pictures of int64: expected bytes", "net.pictures"),
        (np.zeros((2, 5, 7, 4), np.uint8), "pictures of 2x5x7x4: expected N x H x W x 3", "net.pictures"),
        (np.zeros((5, 7), np.uint8), "pictures of 5x7: expected", r"array\[None\] is a batch"),
        (np.zeros((0, 5, 7, 3), np.uint8), "pictures of 0x5x7x3: expected", "net.pictures"),
        (np.uint8(5), "pictures of scalar: expected", "net.pictures"),
        ([BYTES[0], BYTES[0, :3]], "pictures of different sizes", "net.pictures"),
        (["cat.jpg"], "pictures of <U7: expected bytes", "net.pictures"),
        (BYTES[:, :, :5], "'data' of 2x3x5x7: 2 pictures of 3x5x5 do not fit", "resizes and crops"),
        (BYTES[..., 0], "'data' of 2x3x5x7: 2 pictures of 1x5x7 do not fit", "N x H x W x 3, RGB"),
        (BYTES[0], "'data' of 2x3x5x7: 5 pictures of 1x7x3 do not fit", r"array\[None\] is a batch"),
        (BYTES.transpose(0, 3, 1, 2), "pictures of 2x3x5x7: expected N x H x W x 3", "net.pictures"),
    ],
)
def test_what_is_no_batch_of_pictures(tmp_path: Path, array: Any, words: str, hint: str) -> None:
    net = net_of(tmp_path, WAYS["BGR"])
    with pytest.raises(UsageError, match=words) as error:
        net.forward(Pictures(array))
    assert error.value.hint is not None
    assert np.char.find(error.value.hint, hint.replace("\\", "")) >= 0


@pytest.mark.parametrize("device", ["emulator", "float"])
@pytest.mark.parametrize(
    ("how", "words"),
    [
        (Preprocess(mean=(1.0, 2.0)), "the mean is 2; expected 3 numbers"),
        (Preprocess(mean=IMAGE[:, :4]), "the mean is 3x4x9"),
        (Preprocess(channels="gray"), "a gray image has 1 channel, the input blob is 2x3x5x7"),
    ],
)
def test_a_preprocess_of_another_network(tmp_path: Path, device: str, how: Preprocess, words: str) -> None:
    net = net_of(tmp_path, how, device=device)
    if device == "emulator":
        net.calibrate(naive(BYTES, WAYS["BGR"]))
    with pytest.raises(UsageError, match=words):
        net.forward(Pictures(BYTES))


def test_labels_are_no_pictures(tmp_path: Path) -> None:
    text = """layer { name: "data" type: "Data" top: "data" top: "label" transform_param { crop_size: 5 } }
        layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 4 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }"""
    (tmp_path / "net.prototxt").write_text(text)
    net = chai.Net(tmp_path / "net.prototxt", device="float", shapes={"data": (2, 3, 5, 5)})
    pictures = Pictures(BYTES[:, :, :5])
    assert net.forward(data=pictures, label=np.array([1, 2])).keys() == {"fc", "loss"}
    with pytest.raises(UsageError, match="input 'label': expected numbers"):
        net.forward(data=pictures, label=pictures)


def test_items_are_stacked_as_bytes_if_all_are() -> None:
    one, other = Pictures(BYTES[:1], WAYS["all"]), Pictures(BYTES[1:], WAYS["all"])
    together = stacked([one, other])
    assert isinstance(together, Pictures)
    assert np.array_equal(together.pixels, BYTES)
    floats = naive(BYTES, WAYS["all"])
    mixed = stacked([one, floats[1]])
    assert isinstance(mixed, np.ndarray)
    assert np.array_equal(mixed, floats)
    assert np.array_equal(together[1].pixels, BYTES[1:])
    assert [len(each.pixels) for each in (together[:1], together[np.array([1, 1, 0])])] == [1, 3]
