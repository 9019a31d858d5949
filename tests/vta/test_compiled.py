"""Compiled networks for VTA: the file holds instructions, and nothing lowers them again."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai import cli
from chai.artifact.save import save
from chai.env import env
from chai.errors import ChaiError, DeviceError, ParseError
from chai.limits import Limits
from chai.vta import checks
from chai.vta.isa import BYTES, Gemm, Load, Memory, Store, decode, encode
from tests.artifact.common import assembled, parts
from tests.passes.common import MAX, network

from .random_tasks import MACHINE

DIGITS = "prototxt/digits.prototxt", "prototxt/digits.caffemodel"
SMALL = f"""c1 Convolution data -> c1 : convolution_param {{ num_output: 5 kernel_size: 2 stride: 2 }}
    p1 Pooling c1 -> p1 : {MAX}
    out Softmax p1 -> out"""


def images(shape: tuple[int, ...] = (2, 3, 5, 7)) -> np.ndarray:
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A file of two Tasks on VTA and one layer on the host, and its output on the emulator."""
    folder = tmp_path_factory.mktemp("vta")
    net = network(folder, SMALL, device="emulator", overlay="vta-z7020")
    net.calibrate(images())
    wanted = net.forward(images())["out"]
    assert set(net.partition.reasons) == {"out"}
    save(net, folder / "net.chai")
    return folder / "net.chai", wanted


def ran(path: Path) -> np.ndarray:
    return chai.Net(path, device="vtasim").forward(images())["out"]


Contents = tuple[dict[str, Any], dict[str, bytes]]


@pytest.fixture
def contents(small: tuple[Path, np.ndarray]) -> Contents:
    header, sections = parts(small[0])
    assert [*sections] == ["instructions.0", "constants.0", "weights"]
    return header, sections


def refused(tmp_path: Path, header: Mapping[str, Any], sections: Mapping[str, bytes], match: str) -> None:
    path = tmp_path / "wrong.chai"
    path.write_bytes(assembled(header, sections))
    with pytest.raises((ParseError, DeviceError), match=match):
        ran(path)


# -- what it computes


def test_a_file_equals_the_emulator_and_is_the_same_each_time(small: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    path, wanted = small
    assert np.array_equal(ran(path), wanted)
    net = network(tmp_path, SMALL, device="emulator", overlay="vta-z7020")
    net.calibrate(images())
    save(net, tmp_path / "again.chai")
    assert (tmp_path / "again.chai").read_bytes() == path.read_bytes()


def test_running_a_file_imports_no_lowering(tmp_path: Path) -> None:
    batch = np.random.default_rng(3).random((3, 1, 8, 8)).astype(np.float32)
    net = chai.Net(*DIGITS, device="emulator", overlay="vta-z7020")
    net.calibrate(batch)
    path = tmp_path / "digits.chai"
    save(net, path)
    np.save(tmp_path / "in.npy", batch)
    np.save(tmp_path / "out.npy", net.forward(batch)["prob"])
    code = (
        "import sys, numpy as np, chai\n"
        f"net = chai.Net({str(path)!r}, device='vtasim')\n"
        f"scores = net.forward(np.load({str(tmp_path / 'in.npy')!r}))['prob']\n"
        f"assert np.array_equal(scores, np.load({str(tmp_path / 'out.npy')!r}))\n"
        "print(*sorted(m for m in sys.modules if m.startswith('chai.vta.')))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    loaded = {name.removeprefix("chai.vta.") for name in process.stdout.split()}
    assert {"program", "checks", "simulator"} <= loaded
    assert loaded.isdisjoint({"segment", "conv", "pool", "sums", "requantize", "emit"})


def test_the_command_line(small: tuple[Path, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = small
    assert cli.main(["show", str(path)]) == 0
    shown = capsys.readouterr()
    assert "2 Tasks in 1 segment" in shown.out
    assert f"next: chai run {path} -i IMAGE --device vtasim" in shown.err
    assert cli.main(["show", str(path), "--listing"]) == 0
    listed = capsys.readouterr().out
    assert "c1 (compiled)" in listed
    assert "FINISH" in listed
    out = tmp_path / "digits.chai"
    calibration = ["--calibration", "prototxt/digits_images"]
    assert cli.main(["compile", *DIGITS, "--overlay", "vta-z7020", *calibration, "-o", str(out)]) == 0
    assert f"next: chai run {out} -i IMAGE --device vtasim" in capsys.readouterr().err


def test_only_whole_segments_run(small: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="layer 'c1' is compiled to instructions"):
        chai.Net(small[0], device="emulator").forward(images())
    with pytest.raises(DeviceError, match="takes no descriptors"):
        chai.Net(small[0], device="rtlsim").forward(images())
    with pytest.raises(DeviceError, match="layer 'c1' is compiled to instructions"):
        chai.Net(small[0], device="vtasim", keep="all").forward(images())
    monkeypatch.setenv("CHAI_CHECK", "1")
    env.cache_clear()
    with pytest.raises(DeviceError, match="layer 'c1' is compiled to instructions"):
        ran(small[0])


@pytest.mark.parametrize("device", ["emulator", "float", "rtlsim"])
def test_the_hint_names_the_device_that_runs_the_file_anywhere(small: tuple[Path, np.ndarray], device: str) -> None:
    with pytest.raises(DeviceError) as caught:
        chai.Net(small[0], device=device).forward(images())
    assert caught.value.hint is not None
    assert re.findall(r"--device (\w+)|or (emulator)", caught.value.hint) == [("vtasim", "")]


def test_vtasim_names_the_device_of_a_file_for_the_array(tmp_path: Path) -> None:
    net = network(tmp_path, SMALL, device="emulator", overlay="pynq-z2")
    net.calibrate(images())
    save(net, tmp_path / "array.chai")
    with pytest.raises(DeviceError, match="overlay pynq-z2 is no VTA") as caught:
        chai.Net(tmp_path / "array.chai", device="vtasim").forward(images())
    assert caught.value.hint == "--device emulator, or compile it again with --overlay vta-z7020"
    with pytest.raises(DeviceError) as caught:
        network(tmp_path, SMALL, device="vtasim", overlay="pynq-z2").forward(images())
    assert caught.value.hint == "--overlay vta-z7020"
    with pytest.raises(DeviceError) as caught:
        network(tmp_path, SMALL, device="rtlsim", overlay="vta-z7020").forward(images())
    assert caught.value.hint == "--device vtasim or emulator, or pynq on a board"


# -- damaged files


def flips(small: tuple[Path, np.ndarray], folder: Path, step: int) -> Iterator[bool]:
    """Flip every ``step``-th bit of the two sections, with a right checksum; yield whether the file is refused."""
    header, sections = parts(small[0])
    wanted, path = small[1], folder / "flipped.chai"
    places = [(name, i) for name in ("instructions.0", "constants.0") for i in range(8 * len(sections[name]))]
    for name, bit in places[::step]:
        wrong = bytearray(sections[name])
        wrong[bit // 8] ^= 1 << bit % 8
        path.write_bytes(assembled(header, {**sections, name: bytes(wrong)}))
        try:
            scores = ran(path)
        except ChaiError as error:
            assert str(path) in str(error) or "the program of layers c1 to p1: " in str(error)
            yield True
        else:
            assert scores.shape == wanted.shape
            assert np.isfinite(scores).all()
            yield False


def test_some_wrong_bits_with_a_right_checksum(small: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    verdicts = [*flips(small, tmp_path, 331)]
    assert sum(verdicts) > 10
    assert verdicts.count(False) > 10


@pytest.mark.slow
def test_every_wrong_bit_with_a_right_checksum(small: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    verdicts = [*flips(small, tmp_path, 1)]
    assert sum(verdicts) > 2000
    assert verdicts.count(False) > 2000


def test_wrong_bits_of_the_file_are_refused(small: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    content = small[0].read_bytes()
    path = tmp_path / "raw.chai"
    for bit in range(5, 8 * len(content), 1013):
        wrong = bytearray(content)
        wrong[bit // 8] ^= 1 << bit % 8
        path.write_bytes(wrong)
        with pytest.raises(ChaiError, match=r"raw\.chai"):
            ran(path)


def changed(sections: Mapping[str, bytes], number: int, **values: Any) -> dict[str, bytes]:
    """Return the sections with other values of one instruction."""
    program = decode(sections["instructions.0"], MACHINE.encoding)
    program[number] = program[number]._replace(**values)
    return {**sections, "instructions.0": encode(program, MACHINE.encoding)}


def test_sections_of_wrong_sizes_are_refused(contents: Contents, tmp_path: Path) -> None:
    header, sections = contents
    listed, constants = sections["instructions.0"], sections["constants.0"]
    refused(tmp_path, header, {**sections, "instructions.0": listed[:-1]}, "no whole number of instructions")
    refused(tmp_path, header, {**sections, "instructions.0": b""}, "are not those of 2 Tasks")
    refused(tmp_path, header, {**sections, "instructions.0": listed[: 3 * BYTES]}, "are not those of 2 Tasks")
    refused(tmp_path, header, {**sections, "instructions.0": listed[:-BYTES]}, "has no FINISH")
    refused(tmp_path, header, {**sections, "instructions.0": bytes((32 << 20) + BYTES)}, "are more than 33,554,432")
    refused(tmp_path, header, {**sections, "constants.0": constants[:-1]}, "not a multiple of 256")
    del sections["constants.0"]
    refused(tmp_path, header, sections, "section 'constants.0' is missing")


def test_addresses_outside_the_segment_are_refused(contents: Contents, tmp_path: Path) -> None:
    header, sections = contents
    program = decode(sections["instructions.0"], MACHINE.encoding)
    loads = [
        i for i, each in enumerate(program) if isinstance(each, Load) and each.memory == Memory.INP and each.columns
    ]
    stores = [i for i, each in enumerate(program) if isinstance(each, Store)]
    weights = [i for i, each in enumerate(program) if isinstance(each, Load) and each.memory == Memory.WGT]
    for number in (loads[0], stores[0]):
        refused(
            tmp_path,
            header,
            changed(sections, number, dram=(1 << 32) - 1),
            f"instruction {number}: byte .* in no region",
        )
    refused(tmp_path, header, changed(sections, stores[0], dram=0), f"instruction {stores[0]} .STORE.*may be stored to")
    refused(tmp_path, header, changed(sections, loads[0], dram=0), f"instruction {loads[0]} .LOAD.*loaded into INP")
    last = program[stores[0]]
    assert isinstance(last, Store)
    wrong = changed(sections, weights[0], dram=last.dram // BYTES)
    refused(tmp_path, header, wrong, f"instruction {weights[0]} .LOAD.*loaded into WGT")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("channels", [0], "has no channels"),
        ("channels", [-1, 2], "has no channels"),
        ("channels", [1, 5], "has no channels"),
        ("channels", [0, 0], "has no channels"),
        ("macs", -1, "expected sizes"),
        ("cycles", 1 << 48, "expected sizes"),
        ("cycles", "7", "expected int"),
        ("instructions", 1 << 20, "are not those of 2 Tasks"),
        ("zero_weights", -1, "expected sizes"),
        ("origin", [], "origin names no layer"),
    ],
)
def test_wrong_words_about_tasks_are_refused(
    contents: Contents, tmp_path: Path, key: str, value: object, match: str
) -> None:
    header, sections = deepcopy(contents)
    step = next(step for step in header["steps"] if "tasks" in step)
    step["tasks"][0][key] = value
    refused(tmp_path, header, sections, match)


def test_a_program_costs_no_more_memory_than_it_may(
    contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, sections = contents
    program = decode(sections["instructions.0"], MACHINE.encoding)
    number = next(i for i, each in enumerate(program) if isinstance(each, Gemm))
    refused(tmp_path, header, changed(sections, number, outer=16383, inner=16383), "micro-ops in one instruction")
    monkeypatch.setattr(checks, "ROOM", 100)
    refused(tmp_path, header, sections, "micro-ops of different instructions, expected at most 100")


def test_a_program_computes_no_longer_than_it_may(
    contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, sections = contents
    monkeypatch.setattr(checks, "limits", lambda: Limits(macs=10_000))
    refused(tmp_path, header, sections, r"exceeds the limit macs=10,000 \(raise it with CHAI_LIMITS=macs=N\)")
