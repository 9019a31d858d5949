"""python -m tools.arm_cost: rows and tables, the stand-in for a board on this machine, and counts under qemu."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import chai
from chai.cli import main as chai_command
from chai.kernels.native import build
from chai.report.host_work import medians, rows_of
from chai.runtime.times import StepTime
from tests.conftest import ROOT, need_models, report, thinned
from tests.overlay.test_host_model import MODEL
from tools.arm_cost import debian, fit, floats, guest, measure
from tools.arm_cost.__main__ import PAGE, SHIPPED, main
from tools.arm_cost.cost import MARKS, PARTS, Cost, markdown, millions, replaced

GOALS = {"googlenet": 30e6, "googlenet_nolrn": 6e6, "squeezenet_v1.1": 4e6, "face SSD": 20e6}  # a pass on armv7l
SHARE = 0.8  # of them, on aarch64
BOUND = 0.1  # share by which the model of a pass may differ from its count
ROWS = (
    ("pack", "Pack data", 3_000_000),
    ("unpack", "Unpack pool", 200_000),
    ("LRN", "norm", 1_500_000),
    ("store", "1x3x9x7", 70_000),
    ("fetch", "1x16x1x1", 5_000),
    ("driver", "segments: 1", 400_000),
    ("feed", "before the first step", 30_000),
    ("between", "between steps", 20_000),
    ("call", "around the pass", 10_000),
    ("lanes", "two threads", 7_000),
)
COST = Cost("tiny", "armv7l", "cortex-a9", "pynq-z2", 1, ROWS)
PICTURE = Cost("tiny", "aarch64", "cortex-a53", "ultra96", 1, (("picture", "640x480.jpg", 83_800_000),))


# -- rows and tables


def test_the_count_is_the_first_eight_bytes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_bytes(struct.pack("<Q", 7 << 32 | 5))
    count = guest.counter(path)
    assert count() == 7 << 32 | 5
    with open(path, "r+b") as file:
        file.write(struct.pack("<Q", 2**63 + 1))
    assert count() == 2**63 + 1


def test_every_row_is_in_one_part() -> None:
    parts = {"Pack": 3_000_000, "Unpack": 200_000, "host layers": 1_500_000, "store, load": 75_000, "driver": 400_000}
    assert COST.parts() == {**parts, "between": 67_000}
    assert COST.sum == sum(COST.parts().values()) == 5_242_000
    assert PICTURE.parts() == {} and PICTURE.sum == 83_800_000


def test_rows_of_a_pass_add_up_to_all_of_it() -> None:
    def step(name: str, kind: str, engine: str, count: int) -> StepTime:
        return StepTime(name, kind, engine, count * 1000, 0, 0)

    steps = [step("Pack a", "Pack", "host", 100), step("a .. b", "segment", "fpga", 900), step("n", "LRN", "host", 40)]
    times = SimpleNamespace(steps=steps, feed_ms=7000, between_ms=11000)
    moves = [("store", "a", 300), ("load", "b", 200)]
    rows = rows_of(times, moves, 1100, guest.PER_MS)
    assert rows == [
        ("pack", "Pack a", 100),
        ("LRN", "n", 40),
        *moves,
        ("driver", "segments: 1", 400),
        ("feed", "before the first step", 7),
        ("between", "between steps", 11),
        ("call", "around the pass", 1100 - 100 - 900 - 40 - 18),
    ]


def test_moves_are_rows_of_their_own_only_while_a_program_runs() -> None:
    class Blob:
        shape = 2, 3, 5, 7

        def store(self, size: int) -> int:
            clock.append(size)
            return -size

    class Program:
        def run(self, blob: Blob) -> int:
            return blob.store(70)

    clock: list[int] = []
    moves = guest.Moves(lambda: sum(clock))
    with (
        guest.wrapped(Program, "run", moves.program),
        guest.wrapped(Blob, "store", moves.move),
        guest.wrapped(Blob, "fetch", moves.move),
    ):
        assert Blob().store(5) == -5
        assert Program().run(Blob()) == -70
        assert not hasattr(Blob, "fetch")
    Program().run(Blob())
    assert moves.rows == [("store", "2x3x5x7", 70)]


def test_medians_are_of_each_row() -> None:
    def one(*numbers: int) -> list[guest.Row]:
        return [("load", "b", numbers[0]), ("load", "b", numbers[1]), ("store", "b", numbers[2])]

    passes = [one(3, 50, 9), one(1, 30, 8), one(2, 70, 7)]
    assert medians(passes) == (("load", "b", 2), ("load", "b", 50), ("store", "b", 8))
    with pytest.raises(ValueError, match="different rows"):
        medians([*passes, one(1, 2, 3)[:2]])


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0.00"), (49_000, "0.05"), (999_000, "1.00"), (1_240_000, "1.2"), (83_750_000, "83.8")]
)
def test_millions(number: int, text: str) -> None:
    assert millions(number) == text


def test_the_tables_have_all_rows_and_parts() -> None:
    lines = COST.text().splitlines()
    assert lines[0] == "tiny for overlay pynq-z2 on armv7l (cortex-a9), images: 1"
    assert [line.split()[-1] for line in lines[3:13]] == [millions(number) for *_, number in ROWS]
    assert [line.split("  ")[0] for line in lines[15:]] == [*PARTS, "sum"] and lines[-1].endswith(" 5.2")
    assert PICTURE.text().splitlines()[-1].split() == ["sum", "83.8"]
    head, _, row, picture = markdown([COST], [PICTURE]).splitlines()
    assert head.strip("| ").split(" | ") == ["network", "machine", *PARTS, "sum"]
    assert row == "| `tiny` | armv7l | 3.0 | 0.20 | 1.5 | 0.07 | 0.40 | 0.07 | **5.2** |"
    assert picture == "| JPEG, 640x480.jpg | aarch64 |" + "  |" * len(PARTS) + " **83.8** |"


def test_the_page_gets_another_table() -> None:
    page = f"before\n{MARKS[0]}\n| old |\n{MARKS[1]}\nafter\n"
    assert replaced(page, "| new |") == f"before\n{MARKS[0]}\n\n| new |\n\n{MARKS[1]}\nafter\n"
    assert replaced(replaced(page, "| new |"), "| new |") == replaced(page, "| new |")
    with pytest.raises(ValueError, match="the page lacks"):
        replaced("nothing", "| new |")


def test_the_board_page_has_the_table_of_all_shipped_networks() -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    table, end, _ = rest.partition(MARKS[1])
    head, _, *rows = table.split("\n\n")[1].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert end and [cell.strip() for cell in head.strip("|").split("|")] == ["network", "machine", *PARTS, "sum"]
    machines = [*debian.MACHINES]
    names = [f"`{name}`" for name in SHIPPED] * len(machines) + ["JPEG, 640x480.jpg"] * len(machines)
    assert [row[0] for row in cells] == names
    assert [row[1] for row in cells] == [m for m in machines for _ in SHIPPED] + machines
    for *parts, total in (row[2:] for row in cells[: -len(machines)]):
        assert sum(map(float, parts)) == pytest.approx(float(total.strip("*")), abs=0.05 * len(parts) + 0.05)


def page_rows() -> list[list[str]]:
    """Return the cells of the table of docs/board.md."""
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, *rows = rest.partition(MARKS[1])[0].split("\n\n")[1].splitlines()
    return [[cell.strip(" *`") for cell in row.strip("|").split("|")] for row in rows]


def modelled(network: str, machine: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what chai show says of a board's host."""
    assert chai_command(["show", network, "--overlay", measure.OVERLAYS[machine], "--json"]) == 0
    host: dict[str, Any] = json.loads(capsys.readouterr().out)["host"]
    assert host["machine"] == machine and not host["guessed"] and not host["left_out"]
    return host


@pytest.mark.parametrize(("machine", "name"), thinned(2, debian.MACHINES, SHIPPED))
def test_show_is_near_the_table(name: str, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """If not: python -m tools.arm_cost --fit, or --table, was not run after kernels have changed."""
    (row,) = (row for row in page_rows() if row[:2] == [name, machine])
    host = modelled(name, machine, capsys)
    assert host["alone"]["amount"] == pytest.approx(float(row[-1]) * 1e6, rel=BOUND, abs=60_000)
    (picture,) = (row for row in page_rows() if row[:2] == ["JPEG, 640x480.jpg", machine])
    more = host["picture"]["amount"] - host["alone"]["amount"]
    assert more == pytest.approx(float(picture[-1]) * 1e6, rel=BOUND)


# -- the section of manifests


def test_a_manifest_gets_the_section_and_keeps_all_else(tmp_path: Path) -> None:
    plain = '{\n  "name": "half", "sizes": [3, 7],\n  "last": { "a": 1 }\n}\n'
    first = fit.with_section(plain, MODEL)
    assert json.loads(first) == {**json.loads(plain), "host_model": MODEL}
    assert first.startswith(plain.rstrip().removesuffix("\n}") + ',\n  "host_model": {') and first.endswith("}\n}\n")
    other = {**MODEL, "clock_mhz": 999}
    assert json.loads(fit.with_section(first, other)) == {**json.loads(plain), "host_model": other}
    assert fit.with_section(fit.with_section(first, other), MODEL) == first
    middle = '{"host_model": 3, "name": "half"}'
    assert json.loads(fit.with_section(middle, MODEL)) == {"host_model": MODEL, "name": "half"}


def test_sections_are_written_for_the_boards_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = {
        name: shutil.copytree(chai.overlay.load(name).path.parent, tmp_path / name) for name in chai.overlay.names()
    }
    load = chai.overlay.load
    monkeypatch.setattr(fit.overlays, "load", lambda name: load(folders[name]))
    written = fit.write({machine: {**MODEL, "machine": machine} for machine in debian.MACHINES})
    without = {name for name, folder in folders.items() if b"host_model" not in (folder / "overlay.json").read_bytes()}
    assert without == {"chaidnn-diet", "chaidnn-zcu102"} and written == [
        name for name in folders if name not in without
    ]
    for name, folder in folders.items():
        if name in without:
            continue
        section = json.loads((folder / "overlay.json").read_text())["host_model"]
        clock = {"pynq-z2": 650, "vta-z7020": 650, "kv260": 1333}.get(name, 1200)
        assert section == {**MODEL, "machine": "armv7l" if clock == 650 else "aarch64", "clock_mhz": clock}
        assert load(folder).build == load(name).build


# -- the command and what it prepares


def test_the_command_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    for words, text in (
        ([], "expected NET, or --table or --fit alone"),
        (["digits", "--table"], "expected NET, or --table or --fit alone"),
        (["digits", "--fit"], "expected NET, or --table or --fit alone"),
        (["--table", "--fit"], "expected NET, or --table or --fit alone"),
        (["digits", "--repeat", "0"], "--repeat 0: expected at least 1"),
        (["digits", "--machine", "mips"], "invalid choice: 'mips'"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2 and text in capsys.readouterr().err


def test_a_system_without_debians_tools_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "_kernels", lambda *_: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["digits", "--root", str(tmp_path)]) == 1
    assert (
        capsys.readouterr().err == "download qemu\nerror: apt-get and dpkg are not here: a Debian or Ubuntu is needed\n"
    )


def test_a_library_of_these_sources_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "chai-armv7l.so"
    monkeypatch.setattr(build, "library", lambda _: str(library))
    monkeypatch.setattr(debian, "find_spec", lambda _: None)
    library.write_bytes(b"library of other sources")
    with pytest.raises(debian.Unavailable, match=r"ziglang is not installed: pip install ziglang=="):
        debian._kernels(tmp_path, "armv7l")
    cached = tmp_path / "kernels" / build.digest().replace(" ", "-") / library.name
    cached.parent.mkdir(parents=True)
    cached.write_bytes(build.digest().encode())
    debian._kernels(tmp_path, "armv7l")
    assert library.read_bytes() == build.digest().encode()
    cached.unlink()
    debian._kernels(tmp_path, "armv7l")


def test_what_apt_says_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("apt-get", "echo 'E: Unable to locate package' >&2; exit 100"), ("dpkg", "exit 0")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(debian.Unavailable, match="apt-get failed: E: Unable to locate package"):
        debian._debian("armhf", tmp_path / "armhf" / "root")
    assert not (tmp_path / "armhf" / "root" / "complete").exists()


def test_an_architecture_without_a_stand_in_is_refused(tmp_path: Path) -> None:
    with pytest.raises(chai.UsageError, match="the registers of vta have no stand-in"):
        measure._board(measure.Job("digits", overlay="vta-z7020"), tmp_path)


def test_a_made_up_picture_has_its_size_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    from PIL import Image

    path = measure._picture("70x50", tmp_path)
    first = path.read_bytes()
    with Image.open(path) as picture:
        assert (picture.format, picture.size, picture.mode) == ("JPEG", (70, 50), "RGB")
    assert measure._picture("70x50", tmp_path).read_bytes() == first
    assert measure._picture("own.jpg", tmp_path) == Path("own.jpg").resolve()


def test_the_plugin_compiles_for_each_version_of_the_interface(tmp_path: Path) -> None:
    for number in (7, 9):
        try:
            library = measure.plugin(SimpleNamespace(version=number), tmp_path)  # type: ignore[arg-type]
        except debian.Unavailable as error:
            pytest.skip(str(error))
        assert b"qemu_plugin_install" in library.read_bytes()


# -- the program of the guest, on this machine: nothing counts, so all rows are 0


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The network digits for a board, and its manifest."""
    folder = tmp_path_factory.mktemp("board")
    job = measure.Job("digits")
    manifest = measure._board(job, folder)
    return measure._compiled(job, manifest, folder), manifest


def in_guest(compiled: tuple[Path, Path], picture: str = "") -> dict[str, Any]:
    network, manifest = compiled
    (counter := network.parent / "count").write_bytes(bytes(8))
    job = {"network": str(network), "overlay": str(manifest), "picture": picture}
    done = subprocess.run(
        [sys.executable, "-m", "tools.arm_cost.guest", json.dumps({**job, "warm": 1, "repeat": 2}), str(counter)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(measure.HERE), str(ROOT)))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.endswith(" of 3: 0.0 M")] == lines and len(lines) == 3
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_a_pass_goes_through_the_driver_of_the_board(compiled: tuple[Path, Path]) -> None:
    counts = in_guest(compiled)
    assert counts["batch"] == 1 and len(counts["passes"]) == 2
    kinds = [kind for kind, *_ in medians(counts["passes"])]
    assert kinds[0] == "pack" and kinds[-4:] == ["driver", "feed", "between", "call"]
    assert {"unpack", "Softmax"} < set(kinds)
    assert {number for rows in counts["passes"] for *_, number in rows} == {0}


def test_a_picture_is_one_row(compiled: tuple[Path, Path]) -> None:
    picture = measure._picture("40x30", compiled[0].parent)
    assert in_guest(compiled, str(picture)) == {"batch": 1, "passes": [[["picture", "40x30.jpg", 0]]] * 2}


def test_the_stand_in_is_done_at_the_third_look() -> None:
    from tools.arm_cost import pynq

    overlay = chai.overlay.load("pynq-z2")
    registers = overlay.registers
    accelerator = pynq.DefaultIP({"overlay": overlay})
    assert accelerator.read(registers["ID"].offset) == registers["ID"].value
    assert accelerator.read(registers["BUILD"].offset) == overlay.build
    accelerator.write(registers["COUNT"].offset, 9)
    for _ in range(2):
        accelerator.write(registers["CONTROL"].offset, registers["CONTROL"].mask("start"))
        looks = [accelerator.read(registers["STATUS"].offset) for _ in range(4)]
        busy, done = (registers["STATUS"].mask(name) for name in ("busy", "done"))
        assert looks == [busy, busy, done, done]
        assert accelerator.read(registers["DONE"].offset) == 9


# -- under qemu


def counted(job: measure.Job) -> Cost:
    """Return the cost of a job, or skip the test where qemu or Debian's packages cannot be had."""
    try:
        return measure.measure(job, debian.FOLDER)
    except debian.Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("machine", debian.MACHINES)
def test_two_counts_of_a_pass_agree(machine: str) -> None:
    job = measure.Job("digits", machine=machine)
    first, second = counted(job), counted(job)
    assert [row[:2] for row in first.rows] == [row[:2] for row in second.rows]
    assert first.sum == pytest.approx(second.sum, rel=0.01)
    with chai.Net("digits") as net:
        pixels = int(np.prod(net.shapes[net.inputs[0]]))
    kinds = {kind: number for kind, _, number in first.rows}
    assert kinds["pack"] > pixels / 8  # at most 16 pixels of two instructions at once
    assert all(number > 0 for *_, number in first.rows)
    assert first.parts()["driver"] > 10_000  # Python's
    assert 100_000 < first.sum < 10_000_000


@pytest.mark.slow
@pytest.mark.parametrize("machine", debian.MACHINES)
@pytest.mark.parametrize("name", GOALS)
def test_goals(name: str, machine: str) -> None:
    network, weights = name, None
    if name == "face SSD":
        folder = need_models() / "yuface_v1_ssd"
        network, weights = str(folder / "deploy.prototxt"), str(folder / "weights.caffemodel")
    cost = counted(measure.Job(network, weights, machine))
    goal = GOALS[name] * (1 if machine == "armv7l" else SHARE)
    text = f"{name} on {machine}: {cost.sum / 1e6:.1f} M instructions, goal {goal / 1e6:.1f} M"
    report(text)
    if cost.sum > goal:
        pytest.xfail(text)


@pytest.mark.slow
@pytest.mark.parametrize("machine", debian.MACHINES)
@pytest.mark.parametrize("name", SHIPPED)
def test_show_is_near_what_is_counted(name: str, machine: str, capsys: pytest.CaptureFixture[str]) -> None:
    cost = counted(measure.Job(name, machine=machine))
    amount = modelled(name, machine, capsys)["alone"]["amount"]
    report(
        f"{name} on {machine}: modelled {amount / 1e6:.2f} M, counted {cost.sum / 1e6:.2f} M: {amount / cost.sum - 1:+.1%}"
    )
    assert amount == pytest.approx(cost.sum, rel=BOUND)


@pytest.mark.slow
def test_a_float_network_is_counted_beside_ncnn(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert floats.main(["squeezenet_v1.1"]) == 0
    except debian.Unavailable as error:
        pytest.skip(str(error))
    name, ours, others, ratio = capsys.readouterr().out.splitlines()[-1].split()
    assert name == "squeezenet_v1.1" and 50 < float(others) < 150
    assert float(ratio) == pytest.approx(float(ours) / float(others), abs=0.02) and float(ratio) < 1.7
