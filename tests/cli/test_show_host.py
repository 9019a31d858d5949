"""chai show --overlay: the lines about a board's host, whose figures they are, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.cli import main
from chai.overlay import host_model
from chai.report.host_speed import EndToEnd
from tests.cli.test_estimate import LIST
from tests.overlay.test_host_model import MEASURED, MODEL, changed, file, manifest


def shown(capsys: pytest.CaptureFixture[str], *args: str | Path) -> str:
    assert main(["show", *map(str, args)]) == 0
    return capsys.readouterr().out


def lines(text: str) -> dict[str, str]:
    """Return the lines below the table by their label."""
    return {line[:8].strip(): line[9:] for line in text.splitlines() if line[:1].strip() and line[8:9] == " "}


def rates(end: EndToEnd) -> tuple[str, str]:
    low, high = end["images_per_second"]
    slow, fast = end["overlapping"]
    return f"{low:.1f} to {high:.1f} images/second", f"{slow:.1f} to {fast:.1f}"


@pytest.mark.parametrize(
    ("overlay", "machine", "clock"),
    [
        ("pynq-z2", "armv7l", 650),
        ("vta-z7020", "armv7l", 650),
        ("ultra96", "aarch64", 1200),
        ("kv260", "aarch64", 1333),
    ],
)
def test_a_shipped_overlay_says_end_to_end_images_a_second(
    overlay: str, machine: str, clock: int, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(shown(capsys, "digits", "--overlay", overlay, "--json"))
    host = content["host"]
    text = lines(shown(capsys, "digits", "--overlay", overlay))
    alone, overlapping = rates(host["alone"])
    figures = f"1.0 to 1.7 cycles each and {clock} MHz, both assumed, misses in the caches not counted"
    amount = f"{host['alone']['amount'] / 1e6:.1f} M instructions of {machine}"
    assert text["host"] == f"modelled: {amount}, {figures}: {alone}"
    assert text["overlap"].startswith(f"{overlapping} images/second in net.stream")
    assert host["measured"] is False and host["assumed"] == ["clock_mhz", "cycles"]
    read, fast = rates(host["picture"])
    assert f"M more: {read}, {fast} in net.stream" in text["picture"] and "JPEG of 640x480" in text["picture"]
    own = content["modelled_fps"]
    assert host["alone"]["images_per_second"][1] < own and host["alone"]["overlapping"][1] <= own
    assert host["picture"]["images_per_second"][0] < host["alone"]["images_per_second"][0]


def test_the_figures_follow_from_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A made-up host that takes a million instructions for a segment and nothing else."""
    free = {"source": "guess"}
    model = MODEL
    for place in (
        "driver.pass",
        "driver.store",
        "conversions.Pack",
        "conversions.Unpack",
        "layers.LRN",
        "layers.others",
    ):
        model = changed(model, place, free)
    model = changed(model, "driver.segment.call", 1_000_000)
    content = json.loads(shown(capsys, "digits", "--overlay", manifest(tmp_path / "own", model), "--json"))
    host, fpga_ms = content["host"], content["cycles"] / 100_000
    assert content["segments"] == 1 and host["alone"]["amount"] == 1_000_000
    assert host["alone"]["ms"] == pytest.approx([1e6 * 1.5 / 500e3, 1e6 * 4 / 500e3])
    assert host["alone"]["images_per_second"] == pytest.approx([1000 / (8 + fpga_ms), 1000 / (3 + fpga_ms)])
    assert host["alone"]["overlapping"] == host["alone"]["images_per_second"]  # the thread of the overlay does it all
    assert host["left_out"] == ["classifier"] and host["guessed"] == ["prob"] and host["picture"] is None
    text = lines(shown(capsys, "digits", "--overlay", manifest(tmp_path / "own", model)))
    assert text["left out"].endswith("whose time is not known: classifier") and text["guess"].endswith(" own: prob")
    assert "500 MHz, the cycles assumed, misses" in text["host"] and "picture" not in text


def test_without_numbers_nothing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = manifest(tmp_path / "own")
    assert json.loads(shown(capsys, "digits", "--overlay", path, "--json"))["host"] is None
    text = lines(shown(capsys, "digits", "--overlay", path))
    assert "speed" in text and not {"host", "overlap", "picture"} & text.keys()
    assert json.loads(shown(capsys, "digits", "--json"))["host"] is None


def test_a_measured_file_goes_before_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = file(tmp_path, MEASURED)
    for more in ((), ("--batch", "3")):
        host = json.loads(shown(capsys, "digits", "--overlay", "pynq-z2", "--host-model", board, "--json", *more))[
            "host"
        ]
        assert host["measured"] and host["board"] == "Digilent Pynq-Z2" and host["clock_mhz"] is None
    text = lines(shown(capsys, "digits", "--overlay", "pynq-z2", "--host-model", board))
    ms = json.loads(shown(capsys, "digits", "--overlay", "pynq-z2", "--host-model", board, "--json"))["host"]["alone"][
        "ms"
    ]
    assert re.fullmatch(rf"measured: {ms[0]:.2f} ms an image on Digilent Pynq-Z2: \d+\.\d images/second", text["host"])


def test_a_compiled_file_has_the_lines_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chai.Net("digits", device="null", calibrate=np.ones((1, 1, 8, 8), np.float32)) as net:
        save(net, tmp_path / "net.chai")
    compiled = json.loads(shown(capsys, tmp_path / "net.chai", "--json"))["host"]
    planned = json.loads(shown(capsys, "digits", "--overlay", "pynq-z2", "--json"))["host"]
    assert compiled["alone"]["amount"] == pytest.approx(planned["alone"]["amount"], rel=0.02)
    assert "host" in lines(shown(capsys, tmp_path / "net.chai", "--host-model", file(tmp_path, MEASURED)))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["digits", "--host-model", "board.json"], 2, "--host-model does nothing without an overlay"),
        (["digits", "--overlay", "pynq-z2", "--host-model", "missing.json"], 2, "there is no file 'missing.json'"),
        (["digits", "--overlay", "pynq-z2", "--host-model", "wrong.json"], 65, "wrong.json:2:"),
        (["digits", "--source", "conv1", "--host-model", "board.json"], 2, "--host-model does nothing with --source"),
    ],
)
def test_refusals(
    arguments: list[str],
    code: int,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("board.json").write_text(host_model.layout(MEASURED))
    Path("wrong.json").write_text('{\n  "drivers": 3\n}')
    assert main(["show", *arguments]) == code
    assert text in capsys.readouterr().err


def test_estimates_leave_the_host_out_and_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "layers.csv").write_text(LIST)
    assert main(["estimate", str(tmp_path / "layers.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("(pynq-z2); the host is not counted")


@pytest.mark.parametrize("device", ["emulator", "null", "float", "rtlsim", "vtasim"])
def test_what_is_no_board_is_not_measured(device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "board.json"
    assert main(["devices", "--measure", "--device", device, "-o", str(path)]) == 2
    assert f"device {device} is no board" in capsys.readouterr().err and not path.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["-o", "x.json"], "--output does nothing without --measure"),
        (["--measure", "--test"], "--test does nothing with --measure"),
        (["--measure", "--json"], "--json does nothing with --measure"),
    ],
)
def test_options_of_measuring(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", *arguments]) == 2
    assert text in capsys.readouterr().err
