"""A compiled network gives what the network it was compiled from gives, bit for bit, and is the same file every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.errors import ModelError, PluginError, UsageError
from chai.fixed import SCHEMES
from chai.images.files import find, read
from chai.images.preprocess import Preprocess
from chai.offload.schedule import DeviceStep, HostStep
from chai.util.paths import resource
from chai.zoo.card import Card
from chai.zoo.card_file import read_card
from tests.conftest import ROOT, need_models, report
from tests.passes.common import CONV, dims, network

from .common import NETS, compiled, custom, data, load, parts

ANY_BATCH = [name for name in NETS if name != "flat"]


@pytest.mark.parametrize("name", NETS)
def test_to_the_bit(tmp_path: Path, name: str) -> None:
    net, path = compiled(tmp_path, name)
    again = load(path)
    assert again.schedule.engines() == net.schedule.engines()
    assert again.outputs == net.outputs and again.inputs == net.inputs
    for seed in (1, 2):
        wanted, outputs = net.forward(data(seed)), again.forward(data(seed))
        assert list(outputs) == list(wanted)
        for blob in wanted:
            assert outputs[blob].dtype == np.float32 and wanted[blob].std() > 0
            assert np.array_equal(outputs[blob], wanted[blob])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("largest", [1e-44, 1e-25, 1e25, 1e36])
def test_formats_of_any_size(tmp_path: Path, scheme: str, largest: float) -> None:
    """A network that was calibrated can be compiled, whatever its values are."""
    net = network(tmp_path, NETS["several outputs"], device="emulator", scheme=scheme)
    images = data() / np.abs(data()).max() * np.float32(largest)
    wanted = net.forward(images)
    save(net, tmp_path / "net.chai")
    outputs = load(tmp_path / "net.chai").forward(images)
    assert all(np.array_equal(outputs[blob], wanted[blob]) for blob in wanted)


@pytest.mark.parametrize("name", ["host layers", "codes", "several outputs", "parts"])
def test_blobs_that_are_kept(tmp_path: Path, name: str) -> None:
    """All that are left of a network: those inside a segment, too, and those of batches that are cut and filled up."""
    net, path = compiled(tmp_path, name, keep="all")
    again = load(path, keep="all")
    for batch in (data(3), data(4, 3), data(5, 1)):
        net.forward(batch)
        again.forward(batch)
        blobs = again.blobs
        assert len(blobs.readable) > 3 and list(blobs) == list(net.blobs)
        for blob, values in blobs.readable.items():
            assert np.array_equal(values, net.blobs[blob]), blob
    some = load(path, keep=["c1"])
    wanted = some.forward(data(3))
    assert set(some.blobs) == {"c1", *wanted}


def test_the_small_networks_hold_what_they_are_for(tmp_path: Path) -> None:
    """Else the tests here would pass on nothing."""
    net, path = compiled(tmp_path, "parts")
    assert len(parts(path)[0]["places"]) == 4  # two branches of a concat, two pieces of a slice
    kinds = {task.kind for step in net.schedule.steps if isinstance(step, DeviceStep) for task in step.tasks}
    assert kinds == {"conv", "affine", "eltwise", "pool"}
    net, path = compiled(tmp_path, "codes")
    assert [step.codes for step in load(path).schedule.steps if isinstance(step, HostStep)] == [True]
    net, path = compiled(tmp_path, "several outputs")
    assert len(net.outputs) == 3
    net, _ = compiled(tmp_path, "places of maxima")
    assert [step.layer.name for step in net.schedule.steps if isinstance(step, HostStep)] == ["u1"]
    net, _ = compiled(tmp_path, "places on the overlay")
    assert len(net.schedule.between) > 8 and not any(isinstance(step, HostStep) for step in net.schedule.steps)
    net, path = compiled(tmp_path, "host layers")
    assert [e for e in net.schedule.engines() if e.startswith("host") and "ack" not in e] == [
        "host:mirror", "host:Normalize", "host:Softmax",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NETS)
def test_the_same_bytes_for_the_same_network(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    first, second = (compiled(tmp_path / folder, name)[1].read_bytes() for folder in "ab")
    assert first == second


DIGITS = """import sys, chai, numpy; from chai.artifact.save import save; net = chai.Net('digits')
net.calibrate(numpy.arange(64, dtype='f').reshape(1, 1, 8, 8) / 64); save(net, sys.argv[1] + "/net.chai")"""
PLACES = """import sys; from pathlib import Path; from tests.artifact.common import compiled
compiled(Path(sys.argv[1]), "places on the overlay")"""


@pytest.mark.parametrize("code", [DIGITS, PLACES])
def test_the_same_bytes_in_another_process(tmp_path: Path, code: str) -> None:
    """Sets are ordered by a seed that every process draws anew."""
    for seed in "12":
        (tmp_path / seed).mkdir()
        env = {**_environment(), "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code, tmp_path / seed], check=True, env=env, cwd=ROOT)
    assert (tmp_path / "1" / "net.chai").read_bytes() == (tmp_path / "2" / "net.chai").read_bytes()


def test_digits_with_its_card(tmp_path: Path) -> None:
    card = read_card(resource("prototxt", "digits.prototxt"))
    files = find([resource("prototxt", "digits_images")])[:7]
    net = chai.Net("digits", batch=7)
    inputs = np.stack([card.preprocess(read(f), (7, 1, 8, 8)) for f in files])
    net.calibrate(inputs)
    save(net, tmp_path / "digits.chai", card)
    again = chai.Net(tmp_path / "digits.chai")
    assert again.card == card
    wanted, outputs = net.forward(inputs), again.forward(inputs)
    assert all(np.array_equal(wanted[b], outputs[b]) for b in wanted)


def test_a_mean_image_and_labels_come_along(tmp_path: Path) -> None:
    mean = np.random.default_rng(0).random((3, 5, 7)).astype(np.float32)
    net, path = compiled(tmp_path, "codes")
    card = Card("small", ("cat", "dög"), Preprocess((9, 11), (5, 7), "RGB", 1.0, mean, (0.5, 0.25, 3.0), True))
    save(net, path, card)
    loaded_card = load(path).card
    assert loaded_card.labels == card.labels and loaded_card.title == "small"
    assert np.array_equal(loaded_card.preprocess.mean, mean)
    assert loaded_card.preprocess.scale == (0.5, 0.25, 3.0)
    assert loaded_card.preprocess.describe((2, 3, 5, 7)) == card.preprocess.describe((2, 3, 5, 7))


@pytest.mark.parametrize("name", ["googlenet", "squeezenet_v1.1", "cifar_resnet20"])
def test_real_networks(tmp_path: Path, name: str) -> None:
    folder = need_models() / name
    image = np.load(min((folder / "cases").iterdir()) / "input.npy")[:1]
    net = chai.Net(folder / "deploy.prototxt", folder / "weights.caffemodel", batch=1)
    net.calibrate(image)
    save(net, tmp_path / "net.chai")
    wanted, outputs = net.forward(image), chai.Net(tmp_path / "net.chai").forward(image)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)
    size = (tmp_path / "net.chai").stat().st_size
    report(
        f"{name}: {size / 1e6:.2f} MB compiled, {(folder / 'weights.caffemodel').stat().st_size / 1e6:.2f} MB caffemodel"
    )


# -- batches of another size


@pytest.mark.parametrize("images", [1, 3, 4, 5])
@pytest.mark.parametrize("name", ANY_BATCH)
def test_another_batch_repeats_and_pads(tmp_path: Path, name: str, images: int) -> None:
    net, path = compiled(tmp_path, name)
    again = load(path)
    assert again.batch == 2
    batch = data(5, images)
    padded = np.concatenate([batch, batch[-1:]])
    wanted = [net.forward(padded[i : i + 2]) for i in range(0, images, 2)]
    outputs = again.forward(batch)
    for blob in outputs:
        assert np.array_equal(outputs[blob], np.concatenate([w[blob] for w in wanted])[:images])
    assert again.perf.batch == images


def test_an_output_without_batch_axis_cannot_be_joined(tmp_path: Path) -> None:
    again = load(compiled(tmp_path, "flat")[1])
    assert again.forward(data())["re"].shape == (280,)
    with pytest.raises(UsageError, match=r"output 're' of 280 has no batch axis: 3 images .*hint: feed 2 images"):
        again.forward(data(0, 3))


BOXES = f"""c1 Convolution data -> c1 : {CONV}
    p1 PriorBox c1 data -> p1 : prior_box_param {{ min_size: 2 }}
    p2 PriorBox c1 data -> p2 : prior_box_param {{ min_size: 3 aspect_ratio: 2 }}
    both Concat p1 p2 -> both : concat_param {{ axis: 2 }}
    out Softmax c1 -> out"""


@pytest.mark.parametrize("images", [2, 3])
def test_a_top_that_no_image_has_a_part_in_is_not_joined(tmp_path: Path, images: int) -> None:
    """The boxes of a PriorBox have a first axis of 1, which is no batch: even if the file's batch is 1."""
    net = network(tmp_path, BOXES, data(1, 1).shape, device="emulator")
    net.calibrate(data(0, 1))
    save(net, tmp_path / "net.chai")
    again = load(tmp_path / "net.chai")
    assert again.batch == 1
    batch = data(5, images)
    wanted = network(tmp_path, BOXES, batch.shape, device="emulator")
    wanted.calibrate(data(0, 1))
    wanted.reshape(data=batch.shape)
    expected, outputs = wanted.forward(batch), again.forward(batch)
    assert outputs.keys() == expected.keys() == {"both", "out"}
    for blob in outputs:
        assert outputs[blob].shape == expected[blob].shape
        assert np.array_equal(outputs[blob], expected[blob])
    again.reshape(data=batch.shape)
    assert again.shapes_of("p1") == wanted.shapes_of("p1") and again.shapes_of("p1")[:2] == (1, 2)


@pytest.mark.parametrize(
    "line",
    [
        "re Reshape c1 -> re : reshape_param { shape { dim: 1 dim: -1 } }",  # its second axis grows with the batch
        "re Reduction c1 -> re : reduction_param { axis: 0 }",
        "re Reduction c1 -> re : reduction_param { axis: -4 }",
        "re ArgMax c1 -> re : argmax_param { axis: -4 }",  # one class for all images
        "sum Reduction c1 -> sum : reduction_param { axis: 0 }\nre Power sum -> re : power_param { scale: 2 }",
        "re Softmax c1 -> re : softmax_param { axis: -4 }",  # has a batch axis, and each value depends on all images
        "re BatchNorm c1 -> re : batch_norm_param { use_global_stats: false }",
        "re Resize c1 -> re : resize_param { size: [1, 0, 0, 0] mode: LINEAR }",  # one image, from however many
    ],
)
def test_an_output_that_mixes_images_cannot_be_joined(tmp_path: Path, line: str) -> None:
    net = network(tmp_path, f"c1 Convolution data -> c1 : {CONV}\n{line}", data(1, 1).shape, device="emulator")
    net.calibrate(data(0, 1))
    save(net, tmp_path / "net.chai")
    again = load(tmp_path / "net.chai")
    assert np.array_equal(again.forward(data(1, 1))["re"], net.forward(data(1, 1))["re"])
    reason = "(no batch axis|depends on all images of a batch)"
    with pytest.raises(UsageError, match=rf"output 're' .* {reason}: 2 images cannot be joined from passes of 1"):
        again.forward(data(0, 2))


ORDER = "permute_param { order: 1 order: 0 }"
REGIONS = [[1, 0, 0, 5, 5], [0, 0, 0, 5, 5]] * 2
SELECTED = {"data": (2, 3, 5, 7), "s": (2,)}


@pytest.mark.parametrize(
    ("lines", "inputs"),
    [
        ("s Slice c1 -> a b : slice_param { slice_dim: 0 }\nre Concat b a -> re : concat_param { concat_dim: 0 }", {}),
        ("s Slice c1 -> a b : slice_param { slice_dim: 0 slice_point: 1 }\n"  # a is the first image of all
         "c Reduction b -> c\nd Add a c -> d\nre Add c1 d -> re", {}),
        (f"a Permute c1 -> a : {ORDER}\nb Softmax a -> b\nre Permute b -> re : {ORDER}", {}),
        (f"a Pad c1 -> a : pad_param {{ paddings: [1, 0, 0, 0, 0, 0, 0, 0] }}\nre Convolution a -> re : {CONV}", {}),
        ("a Reshape c1 -> a : reshape_param { shape { dim: 1 dim: -1 } }\nb Softmax a -> b\n"
         "re Reshape b -> re : reshape_param { shape { dim: -1 dim: 4 dim: 5 dim: 7 } }", {}),
        ("a Reduction c1 -> a : reduction_param { axis: 2 }\n"  # each image's numbers with those of each other
         "b Reshape a -> b : reshape_param { shape { dim: 0 dim: 1 dim: 4 } }\nc Add a b -> c\n"
         "re Reduction c -> re : reduction_param { axis: 1 }", {}),
        ("re BN c1 -> re : bn_param { bn_mode: LEARN }", {}),
        ("re Scale c1 -> re : scale_param { axis: 0 }", {}),
        ("re BatchReindex c1 i -> re", {"i": [1, 0, 1, 0]}),
        ("re RoiAlign c1 r i -> re : roi_align_param { pooled_h: 2 }", {"r": [[0, 0, 5, 5]] * 4, "i": [1, 0, 1, 0]}),
        ("re ROIPooling c1 r -> re : roi_pooling_param { pooled_h: 2 pooled_w: 1 }", {"r": REGIONS}),
        ("re PSROIPooling c1 r -> re : psroi_pooling_param { spatial_scale: 1 output_dim: 1 group_size: 2 }", {"r": REGIONS}),
        ("re LSTM c1 i -> re : recurrent_param { num_output: 3 }", {"i": [[0] * 4, *[[1] * 4] * 3]}),
        ("re RNN c1 i -> re : recurrent_param { num_output: 3 }", {"i": [[0] * 4, *[[1] * 4] * 3]}),
    ],
)  # fmt: skip
def test_images_that_a_layer_mixes_cannot_be_joined(tmp_path: Path, lines: str, inputs: dict[str, Any]) -> None:
    feeds = {"data": data(0, 4), **{blob: np.array(values, np.float32) for blob, values in inputs.items()}}
    half = {blob: values[:2] for blob, values in feeds.items()}
    sources = "".join(f"{blob} Input -> {blob} : {dims(values.shape)}\n" for blob, values in half.items())
    net = network(tmp_path, f"{sources}c1 Convolution data -> c1 : {CONV}\n{lines}", device="emulator")
    net.calibrate(half)
    save(net, tmp_path / "net.chai")
    again = load(tmp_path / "net.chai")
    with pytest.raises(UsageError, match=r"output 're' of .*: 4 images cannot be joined from passes of 2"):
        again.forward(**feeds)


def test_a_filter_that_drops_images_of_some_passes_cannot_be_joined(tmp_path: Path) -> None:
    sources = "".join(f"{blob} Input -> {blob} : {dims(shape)}\n" for blob, shape in SELECTED.items())
    net = network(tmp_path, f"{sources}c1 Convolution data -> c1 : {CONV}\nre Filter c1 s -> re", device="emulator")
    net.calibrate({"data": data(0), "s": np.ones(2, np.float32)})
    save(net, tmp_path / "net.chai")
    again = load(tmp_path / "net.chai")
    assert again.forward(data=data(0, 5), s=np.ones(5, np.float32))["re"].shape == (5, 4, 5, 7)
    with pytest.raises(UsageError, match=r"output 're' of .*: 5 images cannot be joined from passes of 2"):
        again.forward(data=data(0, 5), s=np.array([1, 1, 1, 0, 1], np.float32))


@pytest.mark.parametrize(
    "line",
    [
        "a Reshape c1 -> a : reshape_param { shape { dim: 0 dim: -1 } }",
        "a Reshape c1 -> a : reshape_param { shape { dim: -1 dim: 140 } }",
        "a Scale c1 -> a : scale_param { axis: 0 num_axes: 0 }",
    ],
)
def test_images_that_a_layer_keeps_apart_are_joined(tmp_path: Path, line: str) -> None:
    net = network(tmp_path, f"c1 Convolution data -> c1 : {CONV}\n{line}\nout Softmax a -> out", device="emulator")
    net.calibrate(data(0))
    save(net, tmp_path / "net.chai")
    outputs, wanted = load(tmp_path / "net.chai").forward(data(0, 5)), net.forward(data(0, 5))
    assert np.array_equal(outputs["out"], wanted["out"])


def test_a_stream_keeps_to_the_size_of_its_first_batch(tmp_path: Path) -> None:
    net, path = compiled(tmp_path, "host layers")
    again = load(path)
    batches = [data(seed) for seed in range(5)]
    for wanted, outputs in zip(net.stream(batches), again.stream(batches), strict=True):
        assert all(np.array_equal(wanted[b], outputs[b]) for b in wanted)
    (other,) = again.stream([data(0, 3)])
    assert {b: v.tobytes() for b, v in other.items()} == {b: v.tobytes() for b, v in again.forward(data(0, 3)).items()}
    with pytest.raises(UsageError, match="in a stream of 3x3x5x7"):
        list(again.stream([data(0, 3), data(0, 2)]))


# -- what a compiled network cannot do


def test_words_for_what_was_fixed_at_compile_time(tmp_path: Path) -> None:
    path = compiled(tmp_path, "codes")[1]
    again = load(path)
    for what, words in (
        (lambda: load(path, caffemodel="x.caffemodel"), "a caffemodel cannot be given any more"),
        (lambda: load(path, bits=6), "bits cannot be given any more"),
        (lambda: load(path, scheme="DynamicFixed"), "scheme cannot be given any more"),
        (lambda: load(path, phase="TRAIN"), "phase cannot be given any more"),
        (lambda: load(path, end_layer="c1"), "end_layer cannot be given any more"),
        (lambda: load(path, engine={"c1": "host"}), "layer 'c1' runs on fpga, not on host"),
        (lambda: load(path, engine={"cc1": "host"}), "no layer 'cc1' .*did you mean 'c1'"),
        (lambda: load(path, engine={"c1": "gpu"}), "engine of layer 'c1': expected host or fpga, found 'gpu'"),
        (lambda: load(path, shapes={"data": (2, 3, 5, 8)}), "was compiled for 2x3x5x7"),
        (lambda: load(path, keep="c9"), "keep: there is no blob 'c9'"),
        (lambda: load(path, device="float"), "device float computes in float32"),
        (lambda: again.params, "its parameters cannot be changed"),
        (lambda: again.calibrate(data()), "its formats are fixed"),
        (lambda: again.forward(np.zeros((2, 3, 5, 8), np.float32)), "was compiled for 2x3x5x7"),
        (lambda: again.forward(np.zeros((0, 3, 5, 7), np.float32)), "was compiled for 2x3x5x7"),
        (lambda: load(path, typo=1), "typo"),
    ):
        with pytest.raises((chai.ChaiError, TypeError), match=words):
            what()
    assert load(path, bits=8, engine=None, start_layer="").outputs == again.outputs


def test_formats_have_to_be_known(tmp_path: Path) -> None:
    from tests.passes.common import network

    net = network(tmp_path, NETS["codes"], device="emulator", custom=custom())
    with pytest.raises(UsageError, match=r"was not calibrated: its formats are not known .*--calibration"):
        save(net, tmp_path / "net.chai")
    assert not (tmp_path / "net.chai").exists()
    with pytest.raises(UsageError, match="device float has no overlay to compile for"):
        save(network(tmp_path, NETS["codes"], custom=custom()), tmp_path / "net.chai")


def test_a_custom_type_of_another_version_or_none(tmp_path: Path) -> None:
    path = compiled(tmp_path, "host layers")[1]
    with pytest.raises(
        PluginError, match=r"'m1' was compiled with version 3 of custom type 'mirror', here is 4"
    ) as caught:
        load(path, custom=custom("4"))
    assert caught.value.layer == "m1"
    with pytest.raises((PluginError, ModelError), match="no custom layer of that type is registered"):
        load(path, custom={})


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith("CHAI_")}
