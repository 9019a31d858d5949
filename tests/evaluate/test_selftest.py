"""chai devices --test: a correct device passes; a single wrong bit fails and is located."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chai import devices, overlay as overlays
from chai.cli import main as chai_command
from chai.codegen.encoding import encode
from chai.devices.base import Device, Program, Ran
from chai.errors import DeviceError, UsageError
from chai.evaluate import selftest
from chai.overlay.layout import Placed
from chai.tasks import Task
from chai.tasks.conv import Conv
from chai.tasks.fields import Operands
from chai.tasks.work import Work
from tests.tasks.common import defined, limited

Z2 = overlays.load("pynq-z2")
EMULATOR = devices.open("emulator")
TASKS = [p for p in selftest.probes(Z2) if isinstance(p, selftest.TaskProbe)]
FORMATS = {"8 bit Xilinx", "6 bit Xilinx", "8 bit DynamicFixed", "6 bit DynamicFixed"}


class Faulty(Device):
    """The emulator, and something that happens behind each of its Programs: (its Tasks, all blobs)."""

    fixed = True

    def compile(self, work: Work) -> Program:
        program = EMULATOR.compile(work)
        real, after = program.run, self.after

        def run(blobs: dict[str, np.ndarray]) -> Ran:
            times = real(blobs)
            after(work.tasks, blobs)
            return times

        program.run = run  # type: ignore[method-assign]
        return program

    def __init__(self, after: Callable[[Sequence[Task], dict[str, np.ndarray]], None]) -> None:
        super().__init__("faulty", "wrong on purpose")
        object.__setattr__(self, "after", after)


def failures(after: Callable[[Sequence[Task], dict[str, np.ndarray]], None]) -> dict[str, str]:
    """Reasons of what fails."""
    return {r.name: r.reason for r in selftest.run(Faulty(after), Z2) if not r.ok}


# -- what is tested


def test_every_kind_in_every_format() -> None:
    pairs = {(p.task.kind, p.name.partition(", ")[2]) for p in TASKS}
    assert pairs == {
        (kind, form)
        for kind in ("conv", "affine", "pool", "eltwise", "copy", "lrn", "upsample", "interleave", "depthwise")
        for form in FORMATS
    }
    networks = [p.name for p in selftest.probes(Z2) if isinstance(p, selftest.NetworkProbe)]
    assert networks == [f"network digits, {bits} bit {scheme}" for scheme in Z2.schemes for bits in Z2.bits]
    names = [p.name for p in selftest.probes(Z2)]
    assert len(names) == len(set(names)) == 200


@pytest.mark.parametrize("probe", TASKS, ids=lambda p: p.name)
def test_a_probe_says_something(probe: selftest.TaskProbe) -> None:
    """Its codes are spread out and saturate where they can; no plane of its blobs is full; a board can be told of it."""
    bits = 8 if "8 bit" in probe.name else 6
    inputs = [probe.codes[b] for b in probe.task.inputs]
    wanted = probe.task.define(*inputs)
    r = getattr(probe.task, "requantization", None)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if r is None else (r.low, r.high)
    mixed = "unsigned" in probe.name  # from codes of one kind to codes of the other
    assert wanted.max() == high or mixed or "AVE" in probe.name
    assert wanted.min() == low or mixed or any(word in probe.name for word in ("AVE", "MAX", "leaky"))
    assert len(np.unique(wanted)) > (0.2 if mixed else 0.45) * (high - low)
    assert (wanted == high).mean() < (0.6 if mixed else 0.4)
    zeros = [getattr(probe.task, "zero", 0), *getattr(probe.task, "zeros", ()), 0 if r is None else r.zero]
    assert any(zeros) == (mixed and bits == 8)
    whole = any(word in probe.name for word in ("grouped", "folded"))  # words of channels
    assert whole or any(shape[1] % Z2.layout.channels_per_word for shape in probe.shapes.values())
    assert len({*next(iter(probe.shapes.values()))}) == 4
    if isinstance(probe.task, Conv):
        assert int(np.abs(probe.task.weights.astype(int)).max()) == 2 ** (bits - 1) - 1
    places = {name: Placed(4096 * (i + 1), 1) for i, name in enumerate(probe.shapes)}
    for columns in probe.task.strips(Z2, probe.shapes):
        assert encode(replace(probe.task, columns=columns), Operands(Z2, places, probe.shapes), 1 << 20)


@pytest.mark.parametrize("probe", [p for p in TASKS[:24] if "strips" not in p.name], ids=lambda p: p.name)
def test_the_definitions_are_those_of_the_reference(probe: selftest.TaskProbe) -> None:
    """All but one: strips are of a convolution like the others, whose many columns take the loops 40 s."""
    inputs = [probe.codes[b][:1] for b in probe.task.inputs]
    assert np.array_equal(probe.task.define(*inputs), defined(probe.task, *inputs))


def test_an_overlay_that_has_little() -> None:
    most = {
        "dilation_max": 1,
        "group_max": 1,
        "depthwise": False,
        "leaky": False,
        "prelu": False,
        "stride_max": 1,
        "pool_kernel_max": 0,
    }
    little = limited(Z2, "conv", kernel_max=2, **most)
    little = replace(little, unsigned=False, wide_bits=None, tasks=little.tasks[:1], bits=(8,))
    little = replace(little, schemes=("Xilinx",), batch_max=1)
    probes = selftest.probes(little)
    assert [p.name for p in probes] == ["conv, 8 bit Xilinx", "conv 1x1, 8 bit Xilinx", "network digits, 8 bit Xilinx"]
    first = probes[0]
    assert isinstance(first, selftest.TaskProbe) and isinstance(first.task, Conv)
    assert first.task.window == ((2, 2), (1, 1), (1, 1), (1, 1)) and first.shapes["x"][0] == 1


# -- how it passes and fails


@pytest.mark.parametrize(("name", "probes"), [("pynq-z2", 200), ("zcu102", 196)])  # of which one folds no copies
def test_the_emulator_passes(name: str, probes: int) -> None:
    results = list(selftest.run(devices.open("emulator"), overlays.load(name)))
    assert [r for r in results if not r.ok] == [] and len(results) == probes
    assert all(r.ms >= 0 for r in results)


def test_a_single_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    def flip(tasks: Sequence[Task], blobs: dict[str, np.ndarray]) -> None:
        if [t.kind for t in tasks] == ["pool"]:
            blobs["y"][1, 17, 4, 5] ^= 4

    reasons = failures(flip)
    assert set(reasons) == {p.name for p in TASKS if p.task.kind == "pool"} and len(reasons) == 16
    probe = next(p for p in TASKS if p.name == "pool MAX, 8 bit Xilinx")
    right = int(probe.task.define(probe.codes["x"])[1, 17, 4, 5])
    assert reasons[probe.name] == f"at (1, 17, 4, 5): expected {right}, found {right ^ 4} (1 of 2,394 differ)"


def test_a_bit_that_only_the_network_has_wrong() -> None:
    """A token that is lost between two Tasks, say."""

    def flip(tasks: Sequence[Task], blobs: dict[str, np.ndarray]) -> None:
        if len(tasks) > 1:
            blobs[tasks[-1].output][0, 3] ^= 64

    reasons = failures(flip)
    assert set(reasons) == {f"network digits, {form}" for form in FORMATS}
    assert all(reason.startswith("blob 'prob' at (0, 0): expected 0.") for reason in reasons.values())


def test_channels_beside_a_copy_are_not_looked_at() -> None:
    def scribble(tasks: Sequence[Task], blobs: dict[str, np.ndarray]) -> None:
        if [t.kind for t in tasks] == ["copy"] and blobs["y"].shape[2:] == blobs["x"].shape[2:]:  # not folded
            blobs["y"][:, 0] = 77
            blobs["y"][:, -1] = 77

    assert failures(scribble) == {}


def test_one_that_times_out_does_not_stop_the_rest() -> None:
    def late(tasks: Sequence[Task], _: Mapping[str, np.ndarray]) -> None:
        if isinstance(tasks[0], Conv) and tasks[0].group == 2:
            raise DeviceError("layer 'conv' (conv): not done after 1.0 s, 0 of 1 Tasks completed", hint="it was reset")

    reasons = failures(late)
    assert set(reasons) == {f"conv grouped, {form}" for form in FORMATS}
    assert all("not done after 1.0 s" in reason and "it was reset" in reason for reason in reasons.values())


def test_a_device_that_is_not_there_is_no_failure() -> None:
    class Absent(Device):
        fixed = True

        def compile(self, *_: Any, **__: Any) -> Program:
            raise DeviceError("no board here")

    with pytest.raises(DeviceError, match="no board here"):
        list(selftest.run(Absent("absent", ""), Z2))


def test_float_has_no_definition() -> None:
    with pytest.raises(UsageError, match="device float computes in float"):
        list(selftest.run(devices.open("float"), Z2))


# -- the command


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_the_command_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert chai_command(["devices", "--test"]) == 0
    output = lines(capsys)
    assert output[-1] == "200 of 200 passed: device emulator, overlay pynq-z2"
    assert output[0] == "PASS  conv, 8 bit Xilinx" and all(line.startswith("PASS  ") for line in output[:-1])


def test_the_command_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "overlay.json").write_bytes(overlays.load("ultra96").path.read_bytes())
    assert chai_command(["devices", "--test", "--device", "null", "--overlay", str(tmp_path / "overlay.json")]) == 1
    output = lines(capsys)
    assert output[-1] == "0 of 200 passed: device null, overlay ultra96"
    assert output[0].startswith("FAIL  conv, 8 bit Xilinx: at (0, 0, 0, ") and ": expected " in output[0]


def test_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = devices.open
    monkeypatch.setattr(devices, "open", lambda name: Faulty(_flip) if name == "emulator" else real(name))
    assert chai_command(["devices", "--test", "--json", "--overlay", "kv260"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["schema"], report["device"], report["overlay"]) == ("chai.selftest/1", "faulty", "kv260")
    assert report["build"] == f"{overlays.load('kv260').build:08x}" and report["ok"] is False
    wrong = [t for t in report["tests"] if not t["ok"]]
    assert len(report["tests"]) == 192 and report["failed"] == len(wrong) == 12  # no rows exceed its buffer
    assert {t["name"].partition(",")[0].partition(" ")[0] for t in wrong} == {"affine"}
    assert all(t["reason"].startswith("at (0, 2, 3, 5): expected ") and t["ms"] >= 0 for t in wrong)


def _flip(tasks: Sequence[Task], blobs: dict[str, np.ndarray]) -> None:
    if [t.kind for t in tasks] == ["affine"]:
        blobs["y"][0, 2, 3, 5] ^= 1


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--test", "--device", "float"], 2, "computes in float"),
        (["--test", "--device", "pnyq"], 69, "there is no device 'pnyq'"),
        (["--test", "--overlay", "pynq-z3"], 69, "there is no overlay 'pynq-z3'"),
        (["--device", "emulator"], 2, "does nothing without --test"),
    ],
)
def test_the_command_refuses(
    options: Collection[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chai_command(["devices", *options]) == code
    output = capsys.readouterr()
    assert words in output.err and output.out == ""
