"""Tasks on VTA: the simulator runs their instructions, and gives the bits of their definitions."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import devices
from chai.codegen.memory_map import FIXED
from chai.env import env
from chai.errors import DeviceError, UsageError
from chai.evaluate import selftest
from chai.fixed import Requantization
from chai.tasks.conv import Conv
from chai.tasks.pool import Pool
from chai.tasks.window import Window
from chai.tasks.work import Work
from chai.vta.checks import Checked
from chai.vta.segment import refusal
from chai.vta.simulator import Chip
from chai.vta.sums import digits
from tests.conftest import examples

from .random_tasks import MACHINE, VTA, alone, blobs_of, buffers, random_task, run

DIGITS = "prototxt/digits.prototxt", "prototxt/digits.caffemodel"


def check(seeds: range) -> None:
    chip = Chip(MACHINE)  # one for all: what is on the chip is garbage for the next
    for seed in seeds:
        task, shapes, codes = random_task(seed)
        first, channels = task.channels(shapes)
        output = run(task, shapes, codes, chip)
        assert np.array_equal(output, task.define(*codes.values())), f"{seed}: {task.kind} {blobs_of(shapes)}"
        assert (first, channels) == (getattr(task, "first", 0), output.shape[1])


def test_tasks_are_their_definitions() -> None:
    check(range(60))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(examples(20)))
def test_ten_thousand_tasks_are_their_definitions(part: int) -> None:
    check(range(1000 + 500 * part, 1500 + 500 * part))


def test_wide_padding_fits() -> None:
    """Each corner and side of the image has padding of another shape; one micro-op per pixel of it would fill UOP."""
    window = Window((15, 13), (1, 1), (14, 12))
    task, size = Pool(("x",), "y", ("pool",), window, (74, 82), None), (60, 70)
    codes = np.random.default_rng(2).integers(-128, -100, (1, 2, *size)).astype(np.int8)
    output = run(task, {"x": (1, 2, *size), "y": (1, 2, 74, 82)}, {"x": codes}, Chip(MACHINE))
    assert np.array_equal(output, task.define(codes))


def test_a_factor_is_the_sum_of_its_digits() -> None:
    for factor in (*range(-300, 300), 1 << 17, -(1 << 17), 99_999, -99_999):
        parts = digits(factor)
        assert sum(digit << 7 * i for i, digit in enumerate(parts)) == factor
        assert all(-128 <= digit <= 127 for digit in parts)
        assert len(parts) <= 3


def test_the_buffers_may_be_anywhere() -> None:
    task, shapes, codes = random_task(4)
    segment = alone(task, shapes)
    for begin in (0x10000, 0x1FF00, 0x3000_0000):
        base, memory = buffers(segment, begin)
        segment.fix(base, memory[FIXED])
        for blob in task.inputs:
            segment.blob(blob, memory).store(codes[blob])
        Chip(MACHINE).run(segment.checked(base, memory))
        out = np.zeros(shapes[task.output], np.int8)
        segment.blob(task.output, memory, 0, out.shape[1]).fetch(out)
        assert np.array_equal(out, task.define(*codes.values()))


def one_by_one(r: Requantization) -> Conv:
    window = Window((1, 1), (1, 1), (0, 0))
    return Conv(("x",), "y", ("c",), np.ones((2, 3, 1, 1), np.int8), np.zeros(2, np.int64), window, 1, r)


@pytest.mark.parametrize(
    ("r", "why"),
    [
        (Requantization(np.array([[[3]], [[3]]]), 4, -128, 127), "not powers of two"),
        (Requantization(np.array(1), 31, -128, 127), "shifted by 31 to 31 bits, expected -16 to 30"),
        (Requantization(np.array(1 << 17), 0, -128, 127), "shifted by -17"),
        (Requantization(np.array([[[1]], [[8]]]), 2, -128, 127), "shifted to the right, others not"),
        (Requantization(np.array([[[1]], [[4]]]), 2, -128, 127), "shifted to the right, others not"),
        (Requantization(np.array(1), 4, -128, 127, np.array(1)), "a leaky ReLU"),
        (Requantization(np.array(1), 4, -128, 127, None, -128), "unsigned codes"),
    ],
)
def test_what_shifts_cannot_express_is_refused(r: Requantization, why: str) -> None:
    assert why in (refusal(one_by_one(r)) or "")
    with pytest.raises(DeviceError, match="task c"):
        alone(one_by_one(r), {"x": (1, 3, 4, 5), "y": (1, 2, 4, 5)})


def test_every_shift_is_exact() -> None:
    """Ties, both signs and both ends of the sums, with and without ReLU."""
    values = np.arange(-128, 128).astype(np.int8).reshape(1, 1, 16, 16)
    chip = Chip(MACHINE)
    for right in range(-16, 31):
        biases = [0, 1, -1, 1 << max(0, right - 1), -(1 << max(0, right - 1)), (1 << 24) - 20_000, 20_000 - (1 << 24)]
        bias = np.clip(np.array(biases, np.int64), 20_000 - (1 << 24), (1 << 24) - 20_000)
        weights = np.full((7, 1, 1, 1), 127 if right > 12 else 1, np.int8)
        for low in (-128, 0):
            r = Requantization(np.full((7, 1, 1), 1 << max(0, -right)), max(0, right), low, 127)
            task = Conv(("x",), "y", ("c",), weights, bias, Window((1, 1), (1, 1), (0, 0)), 1, r)
            shapes = {"x": (1, 1, 16, 16), "y": (1, 7, 16, 16)}
            assert np.array_equal(run(task, shapes, {"x": values}, chip), task.define(values)), (right, low)


# -- networks


def both(path: Path | str, weights: Path | str, batch: np.ndarray) -> tuple[chai.Net, chai.Net]:
    """Return a network after a pass on vtasim and on the emulator."""
    nets = []
    for device in ("vtasim", "emulator"):
        net = chai.Net(path, weights, device=device, overlay="vta-z7020", scheme="DynamicFixed", keep="all")
        net.calibrate(batch)
        net.forward(batch)
        nets.append(net)
    return nets[0], nets[1]


def assert_equal(nets: tuple[chai.Net, chai.Net], on_host: set[str]) -> None:
    """Compare all blobs; all layers but those ``on_host`` must have run on VTA."""
    vta, emulator = nets
    assert set(vta.partition.reasons) == on_host
    assert vta.values.keys() == emulator.values.keys()
    for blob, values in emulator.values.items():
        assert np.array_equal(vta.values[blob], values), blob


def test_the_digits_network_equals_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(3).random((3, 1, 8, 8)).astype(np.float32)
    nets = both(*DIGITS, images)
    assert_equal(nets, {"pool/4x4", "classifier", "prob"})
    assert "AVE" in nets[0].partition.reasons["pool/4x4"]
    monkeypatch.setenv("CHAI_CHECK", "1")  # each Task alone, compared with its definition
    env.cache_clear()
    assert_equal(both(*DIGITS, images), {"pool/4x4", "classifier", "prob"})


@pytest.mark.parametrize(
    ("name", "shape", "on_host"),
    [
        ("cifar_resnet20", (2, 3, 32, 32), {"Pooling1", "InnerProduct1", "prob"}),
        ("mtcnn_det1", (1, 3, 41, 50), {"PReLU1", "PReLU2", "PReLU3", "prob1"}),
    ],
)
def test_small_networks_equal_the_emulator(models: Path, name: str, shape: tuple[int, ...], on_host: set[str]) -> None:
    images = np.random.default_rng(5).normal(0, 40, shape).astype(np.float32)
    nets = both(models / name / "deploy.prototxt", models / name / "weights.caffemodel", images)
    assert_equal(nets, on_host)


LRN = {"pool1/norm1", "conv2/norm2"}
PRELUS = {*(f"prelu{i}" for i in range(1, 5)), "prob1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "on_host"),
    [
        ("googlenet", 224, {*LRN, "pool5/7x7_s1", "loss3/classifier", "prob"}),
        ("squeezenet_v1.1", 227, {"pool10", "prob"}),
        ("mtcnn_det2", 24, {*PRELUS, "conv4", "conv5-1", "conv5-2"}),
        ("mtcnn_det3", 48, {*PRELUS, "prelu5", "conv5", "conv6-1", "conv6-2", "conv6-3"}),
    ],
)
def test_networks_equal_the_emulator(
    models: Path, name: str, size: int, on_host: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    logging.getLogger("chai").setLevel(logging.ERROR)
    images = np.random.default_rng(7).normal(0, 40, (1, 3, size, size)).astype(np.float32)
    for check_tasks in ("0", "1"):
        monkeypatch.setenv("CHAI_CHECK", check_tasks)
        env.cache_clear()
        nets = both(models / name / "deploy.prototxt", models / name / "weights.caffemodel", images)
        assert_equal(nets, on_host)


# -- the device


def test_vtasim_is_for_vta_only() -> None:
    with pytest.raises(DeviceError, match="overlay pynq-z2 is no VTA"):
        chai.Net(*DIGITS, device="vtasim", overlay="pynq-z2", calibrate=np.zeros((1, 1, 8, 8), np.float32))
    usable, state = devices.open("vtasim").status()
    assert usable
    assert "vta-z7020" in state


def test_threads_take_turns_on_one_program() -> None:
    """The first thread is inside a run until the second has had its chance to begin one."""
    images = np.random.default_rng(4).random((2, 1, 8, 8)).astype(np.float32)
    net = chai.Net(*DIGITS, device="vtasim", overlay="vta-z7020", calibrate=images)
    expected = [net.forward(image[None])["prob"] for image in images]
    running, begun, most = [0], threading.Event(), [0]

    class Slow(Chip):
        def run(self, program: Iterable[Checked]) -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            begun.wait(0.2) if running[0] == 1 else begun.set()
            super().run(program)
            running[0] -= 1

    for programs in net.offload._programs.values():
        for program in programs:
            program._chip = Slow(MACHINE)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as threads:
        results = [*threads.map(lambda image: net.forward(image[None])["prob"], images)]
    assert most == [1]
    assert all(map(np.array_equal, results, expected))


def test_a_board_and_a_compiled_file_are_refused() -> None:
    from chai.codegen.compile import chain

    with pytest.raises(DeviceError, match="vta-z7020 takes no descriptors"):
        chain(Work(VTA, [], {}, {}, [], []))


def test_the_device_passes_its_own_test() -> None:
    results = [*selftest.run(devices.open("vtasim"), VTA)]
    assert [result.name for result in results if not result.ok] == []
    assert {"conv depthwise, 8 bit DynamicFixed", "pool MAX, 6 bit DynamicFixed"} <= {r.name for r in results}


def test_the_scheme_is_that_of_the_overlay() -> None:
    image = np.zeros((1, 1, 8, 8), np.float32)
    net = chai.Net(*DIGITS, device="null", overlay="vta-z7020", calibrate=image)
    assert {(f.scheme, f.unsigned) for f in net.offload.plan.formats.values()} == {("DynamicFixed", False)}
    with pytest.raises(UsageError, match="scheme Xilinx: overlay vta-z7020 has DynamicFixed, since nothing multiplies"):
        chai.Net(*DIGITS, device="null", overlay="vta-z7020", scheme="Xilinx")
    other = chai.Net(*DIGITS, device="null", overlay="pynq-z2", calibrate=image)
    assert {f.scheme for f in other.offload.plan.formats.values()} == {"Xilinx"}


def test_a_file_with_unsigned_codes_is_signed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same range in steps twice as wide, and one line says so."""
    text = (
        'input: "data" input_shape { dim: 1 dim: 3 dim: 5 dim: 6 }\n'
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c" '
        'convolution_param { num_output: 4 kernel_size: 2 weight_filler { type: "xavier" } }\n'
        'precision_param { quant_type: "DynamicFixed" bw_layer_in: 8 fl_layer_in: 4 bw_layer_out: 8 fl_layer_out: 5 '
        "bw_params: 8 fl_params: 6 chai_unsigned_out: true } }\n"
        'layer { name: "r" type: "ReLU" bottom: "c" top: "c" }\n'
        'layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: MAX kernel_size: 2 } }\n'
    )
    (tmp_path / "net.prototxt").write_text(text)
    images = np.random.default_rng(1).normal(0, 2, (1, 3, 5, 6)).astype(np.float32)
    outcomes = []
    for overlay, device in (("vta-z7020", "vtasim"), ("vta-z7020", "emulator"), ("pynq-z2", "emulator")):
        caplog.clear()
        net = chai.Net(tmp_path / "net.prototxt", device=device, overlay=overlay)
        out = net.forward(images)["p"]
        formats = {(f.unsigned, f.value) for blob, f in net.offload.plan.formats.items() if blob != "data"}
        outcomes.append(
            (formats, sum("no unsigned codes; signed codes of 1 blob" in r.message for r in caplog.records), out)
        )
    assert outcomes[0][:2] == outcomes[1][:2] == ({(False, 4)}, 1)
    assert outcomes[2][:2] == ({(True, 5)}, 0)
    assert np.array_equal(outcomes[0][2], outcomes[1][2])
