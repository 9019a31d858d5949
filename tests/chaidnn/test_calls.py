"""CHaiDNN's programs, written as its examples are, against chai.Net."""

# ruff: noqa: N806 - CHaiDNN's names

from __future__ import annotations

import re
import runpy
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
import chai.pycaffe as caffe
from chai.chaidnn import (
    getPerfInfo,
    inputNormalization,
    io_layer_info,
    kernel_type_e,
    outputWrite,
    xiEval,
    xiExec,
    xiInit,
    xiInputRead,
    xiRelease,
    xiUnpackOutput,
)
from chai.errors import DeviceError, PluginError, UsageError
from chai.images.files import read
from chai.images.preprocess import Preprocess
from tests.conftest import HANG

from .common import DIGITS, RNG, floats, write

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "chaidnn.md").read_text()
IMAGES = sorted((DIGITS / "digits_images").glob("*.png"))

PRECISION = """precision_param {{ quant_type: "{}" bw_layer_in: 8 bw_layer_out: 8 bw_params: 8
    fl_layer_in: {} fl_layer_out: {} fl_params: 7 th_layer_in: {} th_layer_out: {} }}"""
TWO_PARTS = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 11 input_dim: 7
layer {{ name: "c1" type: "Convolution" bottom: "data" top: "c1"
    convolution_param {{ num_output: 18 kernel_size: 3 weight_filler {{ type: "xavier" }} }} {} }}
layer {{ name: "r1" type: "ReLU" bottom: "c1" top: "c1" }}
layer {{ name: "c2" type: "Convolution" bottom: "c1" top: "c2"
    convolution_param {{ num_output: 5 kernel_size: 1 weight_filler {{ type: "xavier" }} }} {} }}
layer {{ name: "pool" type: "Pooling" bottom: "c2" top: "pool" pooling_param {{ kernel_size: 2 stride: 2 }} }}
layer {{ name: "fc" type: "InnerProduct" bottom: "pool" top: "fc"
    inner_product_param {{ num_output: 13 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "prob" type: "Softmax" bottom: "fc" top: "prob" }}
"""
SSD = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 12 input_dim: 10
layer { name: "loc" type: "Convolution" bottom: "data" top: "loc"
    convolution_param { num_output: 8 kernel_size: 4 stride: 4 weight_filler { type: "xavier" } } }
layer { name: "loc_perm" type: "Permute" bottom: "loc" top: "loc_perm" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "loc_flat" type: "Flatten" bottom: "loc_perm" top: "loc_flat" }
layer { name: "conf" type: "Convolution" bottom: "data" top: "conf"
    convolution_param { num_output: 6 kernel_size: 4 stride: 4 weight_filler { type: "xavier" } } }
layer { name: "conf_perm" type: "Permute" bottom: "conf" top: "conf_perm" permute_param { order: 0 order: 2 order: 3 order: 1 } }
layer { name: "conf_flat" type: "Flatten" bottom: "conf_perm" top: "conf_flat" }
layer { name: "prior" type: "PriorBox" bottom: "loc" bottom: "data" top: "prior"
    prior_box_param { min_size: 4 max_size: 6 flip: false variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2 } }
layer { name: "found" type: "DetectionOutput" bottom: "loc_flat" bottom: "conf_flat" bottom: "prior" top: "found"
    detection_output_param { num_classes: 3 share_location: true background_label_id: 0 code_type: CENTER_SIZE
        nms_param { nms_threshold: 0.45 top_k: 10 } keep_top_k: 7 confidence_threshold: 0.3 } }
"""


def two_parts(folder: Path, scheme: str) -> Path:
    c1, c2 = PRECISION.format(scheme, 6, 5, 1.0, 2.5), PRECISION.format(scheme, 5, 4, 2.5, 4.5)
    return write(folder, TWO_PARTS.format(c1, c2))


def classify(dirpath: Any, prototxt: str, caffemodel: str, img_path1: Any, img_path2: Any, **how: Any) -> Any:
    """CHaiDNN's SSD and plugin programs: one network, one loop. Each image's numbers, and the handle's io_layer_info."""
    options = {"resize": None, "mean": [104.0, 117.0, 123.0], "var": None, "inp_mode": False, **how}
    resize, mean_ptr, var_ptr, inp_mode = (options.pop(k) for k in ("resize", "mean", "var", "inp_mode"))
    numImg_to_process = 2
    io_layer_info_ptr = io_layer_info()
    chaihandle = xiInit(dirpath, prototxt, caffemodel, io_layer_info_ptr, numImg_to_process, True, "", "", **options)
    assert (io_layer_info_ptr.num_in_bufs, io_layer_info_ptr.num_out_bufs) == (1, 1)
    channels = io_layer_info_ptr.in_channel
    size = channels * io_layer_info_ptr.in_height * io_layer_info_ptr.in_width * 4
    resize_h, resize_w = resize or (io_layer_info_ptr.in_height, io_layer_info_ptr.in_width)
    normalizeInput = [bytearray(size) for batch_id in range(numImg_to_process)]
    status = inputNormalization(
        normalizeInput, resize_h, resize_w, img_path1, img_path2, inp_mode, mean_ptr, var_ptr,
        numImg_to_process, io_layer_info_ptr,
    )  # fmt: skip
    assert status != -1
    input = [bytearray(io_layer_info_ptr.inlayer_sizebytes) for i in range(io_layer_info_ptr.num_in_bufs)]
    output = [bytearray(io_layer_info_ptr.outlayer_sizebytes) for i in range(io_layer_info_ptr.num_out_bufs)]
    xiInputRead(normalizeInput, input, numImg_to_process, io_layer_info_ptr)
    for _ in range(2):
        xiExec(chaihandle, input, output)
    getPerfInfo(chaihandle)
    unpack_output = [bytearray(io_layer_info_ptr.outlayer_sizebytes) for batch_id in range(numImg_to_process)]
    out_kerType, out_layer_size = io_layer_info_ptr.out_kerType, io_layer_info_ptr.out_size
    xiUnpackOutput(output, unpack_output, out_kerType, out_layer_size, numImg_to_process)
    xiRelease(chaihandle)
    return [floats(u) for u in unpack_output], io_layer_info_ptr


def pingpong(chaihandle1: Any, chaihandle2: Any, info1: Any, info2: Any, batches: list[np.ndarray]) -> list[np.ndarray]:
    """CHaiDNN's GoogLeNet program, with another batch in every round."""
    tmp_out = [[bytearray(info1.outlayer_sizebytes)] for _ in range(2)]
    output = [[bytearray(info2.outlayer_sizebytes)] for _ in range(2)]
    results = []
    xiExec(chaihandle1, [batches[0].copy()], tmp_out[0])
    side = 0
    with ThreadPoolExecutor(1) as threads:
        for batch in batches[1:]:
            queue2 = threads.submit(xiExec, chaihandle2, tmp_out[side], output[side])
            xiExec(chaihandle1, [batch.copy()], tmp_out[1 - side])
            queue2.result()
            results.append(floats(output[side][0]).copy())
            side = 1 - side
    xiExec(chaihandle2, tmp_out[side], output[side])
    return [*results, floats(output[side][0]).copy()]


# -- the example programs


@pytest.mark.parametrize("device", ["float", "emulator"])
def test_a_classifier_with_a_custom_layer(device: str, capsys: pytest.CaptureFixture[str]) -> None:
    images = IMAGES[3], IMAGES[200]
    output, info = classify(
        DIGITS, "digits.prototxt", "digits.caffemodel", *images, mean=[0.0], var=[1.0], inp_mode=True, device=device
    )
    data = np.stack([np.asarray(Image.open(i), np.float32)[None] * np.float32(1 / 255) for i in images])
    wanted = chai.Net("digits", device=device).forward(data)["prob"]
    assert [f[:10].argmax() for f in output] == [int(i.stem[-1]) for i in images]
    assert all(np.array_equal(f[:10], w) for f, w in zip(output, wanted))
    assert (info.out_kerType, info.out_size) == (kernel_type_e.SOFTMAX, 10)
    assert info.inlayer_exectype == ("hardware" if device == "emulator" else "software")
    assert info.outlayer_exectype == "software"
    assert "Total Number of Custom layers : 1" in capsys.readouterr().err


@pytest.mark.parametrize("net", ["googlenet", "googlenet_gemm"])
def test_googlenet_finds_the_camel(models: Path, net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole, with and without the plugin's custom layer, on the emulator."""
    folder = models / "googlenet"
    images = folder / "images" / "camel.jpg", folder / "images" / "goldfish.JPEG"
    shutil.copy(DIGITS / f"{net}.prototxt", tmp_path)
    output, info = classify(tmp_path, f"{net}.prototxt", str(folder / "weights.caffemodel"), *images, resize=(256, 256))
    process = Preprocess(resize=(256, 256), mean=(104, 117, 123))
    data = np.stack([process(read(i), (1, 3, 224, 224)) for i in images])
    wanted = chai.Net(net, folder / "weights.caffemodel").forward(data)["prob"]
    assert [f[:1000].argmax() for f in output] == [354, 1]
    assert all(np.array_equal(f[:1000], w) for f, w in zip(output, wanted))
    assert (info.in_channel, info.in_height, info.in_width, info.inlayer_sizebytes) == (
        3,
        224,
        224,
        2 * 3 * 224 * 224 * 4,
    )
    assert f"Total Number of Custom layers : {int(net == 'googlenet_gemm')}" in capsys.readouterr().err


def test_googlenet_in_two_parts(models: Path) -> None:
    """In float, where the parts give exactly what the whole gives."""
    folder = models / "googlenet"
    data = np.stack([np.load(folder / "cases" / case / "input.npy")[0] for case in ("camel", "goldfish")])
    infos = io_layer_info(), io_layer_info()
    args = (folder, "deploy.prototxt", "weights.caffemodel")
    one = xiInit(*args, infos[0], 2, True, "", "pool5/7x7_s1", device="float")
    two = xiInit(*args, infos[1], 2, False, "loss3/classifier", "", device="float")
    outputs = pingpong(one, two, *infos, [data, data[::-1], data])
    wanted = chai.Net(folder / "deploy.prototxt", folder / "weights.caffemodel", device="float").forward(data)["prob"]
    for output, order in zip(outputs, (wanted, wanted[::-1], wanted)):
        assert np.array_equal(output.reshape(2, 1000), order)
    assert infos[1].in_channel == 0


def test_detections(tmp_path: Path) -> None:
    folder = write(tmp_path, SSD)
    pixels = RNG.integers(0, 256, (2, 12, 10, 3), np.uint8)
    for i in range(2):
        Image.fromarray(pixels[i]).save(folder / f"{i}.png")
    args: Any = (folder, "deploy.prototxt", "", folder / "0.png", folder / "1.png")
    output, info = classify(*args, inp_mode=True, mean=[0.5, 0.5, 0.5], var=[0.1, 0.2, 0.4], device="float")
    data = (pixels[..., ::-1].transpose(0, 3, 1, 2) / 255 - 0.5) / np.array([0.1, 0.2, 0.4]).reshape(3, 1, 1)
    rows = chai.Net(folder / "deploy.prototxt", device="float").forward(data.astype(np.float32))["found"].reshape(-1, 7)
    assert (info.out_kerType, info.out_size) == (kernel_type_e.NMS, 1 + 7 * 7)
    assert len(rows) > 2
    for image, numbers in enumerate(output):
        own = rows[rows[:, 0] == image]
        assert numbers[0] == len(own) <= 7
        assert np.allclose(numbers[1 : 1 + own.size], own.ravel(), rtol=1e-5, atol=1e-6)


def test_an_image_without_detections(tmp_path: Path) -> None:
    """Caffe gives a row of -1 for it; here it has none."""
    folder = write(tmp_path, SSD.replace("confidence_threshold: 0.3", "confidence_threshold: 1e9"))
    info = io_layer_info()
    handle = xiInit(folder, "deploy.prototxt", None, info, 3, False, device="float")
    output = [np.full(info.outlayer_sizebytes // 4, 99, np.float32)]
    xiExec(handle, [np.zeros((3, 3, 12, 10), np.float32)], output)
    unpacked = [bytearray(info.outlayer_sizebytes) for _ in range(3)]
    xiUnpackOutput(output, unpacked, info.out_kerType, info.out_size, 3)
    assert [floats(u)[0] for u in unpacked] == [0, 0, 0]
    outputWrite(folder, "", unpacked, 3, info)
    assert (folder / "out" / "out_2_0.txt").read_text() == "0.000000\n"


@pytest.mark.parametrize("name", ["ulf_1", "ulf_2"])
def test_a_real_detector(models: Path, name: str) -> None:
    folder = models / "yuface_v1_ssd"
    data = np.load(folder / "cases" / name / "input.npy")
    wanted = np.load(folder / "cases" / name / "ref.npz")["detection_out"].reshape(-1, 7)
    info = io_layer_info()
    shapes = {"data": data.shape}
    handle = xiInit(folder, "deploy.prototxt", "weights.caffemodel", info, 1, True, device="float", shapes=shapes)
    output, unpacked = [bytearray(info.outlayer_sizebytes)], [bytearray(info.outlayer_sizebytes)]
    xiExec(handle, [data], output)
    xiUnpackOutput(output, unpacked, info.out_kerType, info.out_size, 1)
    assert floats(unpacked[0])[0] == len(wanted)
    assert np.allclose(floats(unpacked[0])[1 : 1 + wanted.size], wanted.ravel(), rtol=1e-4, atol=1e-4)


def test_the_program_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    (tmp_path / "program.py").write_text(code)
    (tmp_path / "prototxt").symlink_to(DIGITS)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py")
    said = capsys.readouterr().err
    assert "[INFOx] Custom Layer - 1 : classifier" in said
    assert re.findall(r"batch : (\d)\n\[INFOx\] classId : (\d)", said) == [("0", "1"), ("1", "8")] * 2
    files = sorted((tmp_path / "out").iterdir())
    assert [f.name for f in files] == ["out_0_0.txt", "out_0_1.txt", "out_1_0.txt", "out_1_1.txt"]
    assert [np.loadtxt(f).argmax() for f in files] == [1, 1, 8, 8]


def test_the_docs_name_every_call() -> None:
    from chai import chaidnn

    assert all(f"`{name}`" in DOCS for name in chaidnn.__all__ if name != "kernel_type_e")
    for link in re.findall(r"\]\(([^)#]+)", DOCS):
        assert (ROOT / "docs" / link).exists(), link


# -- ping-pong


@pytest.mark.parametrize("end", ["r1", "pool"])
@pytest.mark.parametrize(
    ("device", "scheme"), [("float", "Xilinx"), ("emulator", "Xilinx"), ("emulator", "DynamicFixed")]
)
def test_two_parts_in_two_threads_give_what_the_whole_gives(tmp_path: Path, device: str, scheme: str, end: str) -> None:
    """Cut between two layers of the overlay, and where the host begins; on the emulator to the bit, the formats given."""
    folder = two_parts(tmp_path, scheme)
    infos = io_layer_info(), io_layer_info()
    one = xiInit(folder, "deploy.prototxt", None, infos[0], 2, True, "", end, device=device)
    two = xiInit(
        folder, "deploy.prototxt", None, infos[1], 2, False, {"r1": "c2", "pool": "fc"}[end], "", device=device
    )
    batches = [RNG.normal(0, 0.4, (2, 3, 11, 7)).astype(np.float32) for _ in range(7)]
    whole = chai.Net(folder / "deploy.prototxt", device=device)
    for output, batch in zip(pingpong(one, two, *infos, batches), batches):
        assert np.array_equal(output.reshape(2, 13), whole.forward(batch)["prob"])
    hardware = "hardware" if device == "emulator" else "software"
    assert (infos[0].inlayer_exectype, infos[0].outlayer_exectype) == (hardware, hardware)
    assert (infos[1].inlayer_exectype, infos[1].outlayer_exectype) == (
        hardware if end == "r1" else "software",
        "software",
    )


CUSTOM = """
input: "data" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 5
layer { name: "a" type: "meet" bottom: "data" top: "a" user_defined_layer: true
    xcustom_param { top_dim: 1 top_dim: 2 top_dim: 3 top_dim: 5 } }
layer { name: "b" type: "meet" bottom: "a" top: "b" user_defined_layer: true
    xcustom_param { top_dim: 1 top_dim: 2 top_dim: 3 top_dim: 5 } }
"""


def test_two_handles_run_at_the_same_time(tmp_path: Path) -> None:
    """Both custom layers have to be inside at once, or the barrier breaks."""
    barrier = threading.Barrier(2, timeout=HANG)

    def meet(x: Any) -> None:
        barrier.wait()
        x.top[0][:] = x.bottom[0] + 1

    folder = write(tmp_path, CUSTOM)
    info = io_layer_info()
    one = xiInit(folder, "deploy.prototxt", None, info, 2, False, "", "a", custom={"meet": meet})
    two = xiInit(folder, "deploy.prototxt", None, info, 2, False, "b", "", custom={"meet": meet})
    batch = RNG.random((2, 2, 3, 5)).astype(np.float32)
    outputs = [[bytearray(info.outlayer_sizebytes)] for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        for run in [threads.submit(xiExec, h, [batch], o) for h, o in zip((one, two), outputs)]:
            run.result()
    assert all(np.array_equal(floats(o[0]), batch.ravel() + 1) for o in outputs)


def test_one_handle_runs_one_batch_at_a_time(tmp_path: Path) -> None:
    inside, most = [0], [0]

    def meet(x: Any) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.01)
        x.top[0][:] = x.bottom[0] * 2
        inside[0] -= 1

    info = io_layer_info()
    handle = xiInit(write(tmp_path, CUSTOM), "deploy.prototxt", None, info, 1, False, "", "a", custom={"meet": meet})
    batches = [RNG.random((1, 2, 3, 5)).astype(np.float32) for _ in range(6)]
    outputs = [[bytearray(info.outlayer_sizebytes)] for _ in batches]
    with ThreadPoolExecutor(3) as threads:
        for run in [threads.submit(xiExec, handle, [b], o) for b, o in zip(batches, outputs)]:
            run.result()
    assert most == [1]
    assert all(np.array_equal(floats(o[0]), b.ravel() * 2) for o, b in zip(outputs, batches))


def test_a_layer_that_fails_leaves_the_handle_usable(tmp_path: Path) -> None:
    def meet(x: Any) -> None:
        if x.bottom[0].max() > 1:
            raise ValueError("too bright")
        x.top[0][:] = x.bottom[0]

    info = io_layer_info()
    handle = xiInit(write(tmp_path, CUSTOM), "deploy.prototxt", None, info, 1, False, "", "a", custom={"meet": meet})
    output = [np.zeros((1, 2, 3, 5), np.float32)]
    with pytest.raises(PluginError, match=r"layer 'a' .* too bright"):
        xiExec(handle, [np.full(30, 2, np.float32)], output)
    xiExec(handle, [np.full(30, 1, np.float32)], output)
    assert np.array_equal(output[0], np.ones((1, 2, 3, 5)))


# -- what xiInit says


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_the_input_s_format_where_the_network_brings_it(tmp_path: Path, scheme: str) -> None:
    info = io_layer_info(in_fbits=99, th_in=99.0)
    xiInit(two_parts(tmp_path, scheme), "deploy.prototxt", None, info, 5, True)
    wanted = (8, 0, 1.0, 1) if scheme == "Xilinx" else (8, 6, 0.0, 0)
    assert (info.in_bw, info.in_fbits, info.th_in, info.quant_scheme_flag) == wanted
    assert (info.inlayer_sizebytes, info.outlayer_sizebytes) == (5 * 3 * 11 * 7 * 4, 5 * 13 * 4)


def test_any_number_of_images() -> None:
    info = io_layer_info()
    data = RNG.random((5, 1, 8, 8)).astype(np.float32)
    handle = xiInit(DIGITS, "digits.prototxt", "digits.caffemodel", info, 5, True, device="float")
    output = [np.zeros((5, 10), np.float32)]
    xiExec(handle, [data], output)
    assert np.array_equal(output[0], chai.Net("digits", device="float").forward(data)["prob"])
    assert info.in_bw == 0


def test_released_twice_and_used_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    info = io_layer_info()
    handle = xiInit(DIGITS, "digits.prototxt", "digits.caffemodel", info, 2, True, device="float")
    layers = handle.net.graph.layers
    assert any(layer.blobs for layer in layers)
    xiRelease(handle)
    xiRelease(handle)
    assert not any(layer.blobs for layer in layers)
    for use in (lambda: xiExec(handle, [bytearray(512)], [bytearray(80)]), lambda: getPerfInfo(handle)):
        with pytest.raises(UsageError, match=r"this handle was released .*xiInit"):
            use()
    for use in (lambda: xiRelease(None), lambda: xiExec("net", [], [])):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="expected a handle of xiInit, found"):
            use()


def test_the_report_of_what_is_no_network() -> None:
    info = io_layer_info()
    handle = xiInit(DIGITS, "digits.prototxt", "digits.caffemodel", info, 1, True, device="float")
    for what in (None, handle, "digits"):
        with pytest.raises(UsageError, match=rf"expected a network, found {type(what).__name__} .*chai\.chaidnn"):
            chai.getPerfInfo(what)
    assert chai.getPerfInfo(caffe.Net("digits", caffe.TEST)).steps == ()  # no pass yet


def test_perf_info_of_a_handle_and_of_a_net(capsys: pytest.CaptureFixture[str]) -> None:
    net = chai.Net("digits", device="float")
    net.forward(RNG.random((2, 1, 8, 8)))
    assert getPerfInfo(net) == net.perf
    assert "[INFOx] Custom Layer - 1 : classifier" in capsys.readouterr().err


# -- xiEval


def test_eval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layers.csv").write_text("CONV,20,20,32,3,3,1,1,1,1,20,20,48,1,1\nSOFTMAX,1,1,10\n")
    assert xiEval("layers.csv") == 0
    # two blocks of 24 outputs: 9 taps of 2 blocks of 16 inputs over 400 pixels each; 100 MHz
    ms = (2 * (9 * 2 * 400 + 8) + 64) / 100_000
    assert Path("neteval.csv").read_text() == f"CONV, {ms:f}\nSOFTMAX, 0.000000\n"
    assert capsys.readouterr().err.splitlines()[:2] == [
        "[EVALx] CONV 20 20 32 3 3 1 1 1 1 20 20 48 1 1",
        f"[PERFM] Estimated time : {ms:f} ms",
    ]
    xiEval("layers.csv", overlay="zcu102")
    assert float(Path("neteval.csv").read_text().split()[1]) < ms / 4
    with pytest.raises(DeviceError, match="there is no overlay 'zu9'"):
        xiEval("layers.csv", overlay="zu9")
