"""chai compile, and what the other commands make of its file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from chai.util.paths import resource
from tests.artifact.common import parts
from tests.artifact.test_names import SAME, compiled

IMAGES = resource("prototxt", "digits_images")


def test_compile_show_and_run(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    image = sorted(IMAGES.glob("*_7.png"))[0]
    (tmp_path / "few").mkdir()
    for file in sorted(IMAGES.glob("*.png"))[:36]:
        (tmp_path / "few" / file.name).write_bytes(file.read_bytes())
    done = chai_command("compile", "digits", "--calibration", "few", "-o", "digits.chai", "--batch", "2")
    assert done.returncode == 0, done.stderr
    assert "digits-inception for pynq-z2, batch 2" in done.stdout and "15 Tasks in 1 segment, 4 steps" in done.stdout
    assert done.stderr.splitlines()[-1] == "next: chai run digits.chai -i IMAGE"

    ran = chai_command("run", "digits.chai", "-i", image, "--json")
    assert ran.returncode == 0, ran.stderr
    content = json.loads(ran.stdout)
    assert content["images"][0]["outputs"]["prob"]["top"][0]["index"] == 7
    assert content["preprocess"] == "8x8 gray, scale 0.00392157"  # it came along
    other = chai_command("run", "digits.chai", "-i", image, "--device", "float")
    assert other.returncode == 69 and "computes in float32" in other.stderr

    shown = chai_command("show", "digits.chai")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[2].split()[:5] == ["conv1/3x3", "Convolution", "2x16x8x8", "fpga", "Xilinx(8,"]
    assert "why host classifier: a custom layer" in lines and "why host prob: no Softmax unit" in lines
    assert any(line.startswith("compiled for pynq-z2 (build ") for line in lines)
    listed = json.loads(chai_command("show", "digits.chai", "--json").stdout)
    assert [la["engine"] for la in listed["layers"]][-3:] == ["fpga", "custom", "host"]
    planned = json.loads(chai_command("show", "digits", "--overlay", "pynq-z2", "--batch", "2", "--json").stdout)
    assert listed["activation_bytes"] == planned["activation_bytes"]
    sections = parts(tmp_path / "digits.chai")[1]
    assert listed["constant_bytes"] == len(sections["descriptors.0"]) + len(sections["constants.0"])
    assert any(line.startswith("memory   0.") and "MB of weights and descriptors" in line for line in lines)
    assert "needs the prototxt" in chai_command("show", "digits.chai", "--dot").stderr


def test_formats_or_images_are_needed(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("compile", "digits", "-o", "digits.chai")
    assert done.returncode == 2
    assert "error: digits-inception brings no precision_param and was not calibrated" in done.stderr
    assert "hint: --calibration FOLDER" in done.stderr
    assert not list(tmp_path.iterdir())


def test_words_for_what_cannot_be(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert "expected a name that ends in .chai" in chai_command("compile", "digits", "-o", "digits.bin").stderr
    assert "no weights: chai compile googlenet WEIGHTS" in chai_command("compile", "googlenet", "-o", "g.chai").stderr
    (tmp_path / "bad.chai").write_bytes(b"\x89chai\r\n\x1a" + bytes(99))
    done = chai_command("run", "bad.chai", "-i", sorted(IMAGES.glob("*.png"))[0])
    assert done.returncode == 65 and "format version 0" in done.stderr


def test_the_commands_show_and_write_both_names(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """In ``--json``, in ``-o out.npz`` and in ``chai show``."""
    compiled(tmp_path, SAME["a split at the end"])
    done = chai_command("show", "net.chai", "--json")
    assert json.loads(done.stdout)["outputs"] == ["s0", "s1"], done.stderr
    picture = np.random.default_rng(0).integers(0, 255, (5, 7, 3), np.uint8)
    Image.fromarray(picture).save(tmp_path / "one.png")
    done = chai_command("run", "net.chai", "-i", "one.png", "-o", "out.npz", "--json")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["images"][0]["outputs"]) == ["s0", "s1"]
    with np.load(tmp_path / "out.npz") as written:
        assert {"s0", "s1"} <= set(written.files)
        assert np.array_equal(written["s0"], written["s1"])
