"""chai compile, and what the other commands make of its file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chai
import chai.pycaffe as caffe
from chai.util.paths import resource
from tests.artifact.common import parts
from tests.artifact.test_names import SAME, compiled
from tests.passes.common import prototxt

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
    assert lines[2].split()[:3] == ["conv1/3x3", "Convolution", "2x16x8x8"] and "  fpga    Xilinx(u8, th " in lines[2]
    assert "why host a custom layer: classifier" in lines and "why host no Softmax unit: prob" in lines
    assert any(line.startswith("compiled for pynq-z2 (build ") for line in lines)
    assert f"note     compiled by chai {chai.__version__}" in lines
    listed = json.loads(chai_command("show", "digits.chai", "--json").stdout)
    assert [la["engine"] for la in listed["layers"]][-3:] == ["fpga", "custom", "host"]
    planned = json.loads(chai_command("show", "digits", "--overlay", "pynq-z2", "--batch", "2", "--json").stdout)
    assert listed["activation_bytes"] == planned["activation_bytes"]
    sections = parts(tmp_path / "digits.chai")[1]
    assert listed["constant_bytes"] == len(sections["descriptors.0"]) + len(sections["constants.0"])
    assert any(line.startswith("memory   0.") and "MB of weights and descriptors" in line for line in lines)
    assert "needs the prototxt" in chai_command("show", "digits.chai", "--dot").stderr


def test_the_batch_does_not_depend_on_the_number_of_images(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "two").mkdir()
    for file in sorted(IMAGES.glob("*.png"))[:2]:
        (tmp_path / "two" / file.name).write_bytes(file.read_bytes())
    done = chai_command("compile", "digits", "--calibration", "two", "-o", "digits.chai", "--batch", "5")
    assert done.returncode == 0, done.stderr
    assert "digits-inception for pynq-z2, batch 5" in done.stdout
    assert json.loads(chai_command("show", "digits.chai", "--json").stdout)["batch"] == 5
    with chai.Net(tmp_path / "digits.chai") as net:
        assert (net.batch, net.shapes["data"]) == (5, (5, 1, 8, 8))


def test_formats_or_images_are_needed(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("compile", "digits", "-o", "digits.chai")
    assert done.returncode == 2
    assert "error: digits-inception brings no formats and was not calibrated" in done.stderr
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


# -- an old file stays whole until there is a new one

RUN = "import sys; from chai.cli import main; sys.exit(main(sys.argv[1:]))"
KILLED = """
import builtins, os, signal, sys
from chai.artifact import container

class Cut:  # a file that kills its writer in the middle
    def __init__(self, file):
        self.file, self.left = file, 4
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()
    def write(self, data):
        self.file.write(data)
        self.file.flush()
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)
    def tell(self):
        return self.file.tell()

def renaming(event, args):
    if event == "os.rename":
        os.kill(os.getpid(), signal.SIGKILL)

if sys.argv.pop(1) == "writing":
    container.open = lambda path, mode: Cut(builtins.open(path, mode)) if mode == "wb" else builtins.open(path, mode)
else:
    sys.addaudithook(renaming)
from chai.cli import main
sys.exit(main(sys.argv[1:]))
"""
FULL = """
import resource, sys
limit = int(sys.argv.pop(1))
sys.dont_write_bytecode = True  # the first bytes of a module would stay, and every later process fail to import it
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from chai.cli import main
sys.exit(main(sys.argv[1:]))
"""


def _small(folder: Path) -> tuple[list[str], bytes]:
    """The arguments that compile a small network to net.chai, and what is there already, of other weights."""
    precision = "bw_layer_in: 8 bw_layer_out: 8 bw_params: 8 fl_layer_in: 5 fl_layer_out: 3 fl_params: 7"
    wide = "convolution_param { num_output: 64 kernel_size: 3 }"
    conv = f'conv Convolution data -> c : {wide} precision_param {{ quant_type: "DynamicFixed" {precision} }}'
    (folder / "net.prototxt").write_text(prototxt(conv, (1, 3, 9, 11)))
    arguments = ["compile", "net.prototxt", "net.caffemodel", "-o", "net.chai"]
    for value in (0.25, 0.5):
        net = caffe.Net(str(folder / "net.prototxt"), caffe.TEST, device="float")
        net.params["conv"][0].data[...] = value * np.sign(np.arange(64 * 27).reshape(64, 3, 3, 3) % 5 - 2)
        net.save(folder / "net.caffemodel")
        if value == 0.25:
            assert _python(folder, RUN, *arguments).returncode == 0
    return arguments, (folder / "net.chai").read_bytes()


def _python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("CHAI_")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=folder, env=clean, check=False
    )


def test_a_kill_leaves_the_old_file_whole(tmp_path: Path) -> None:
    """In the middle of the sections, and in the last moment before the new file takes the name."""
    arguments, before = _small(tmp_path)
    for moment in ("writing", "renaming"):
        assert _python(tmp_path, KILLED, moment, *arguments).returncode == -signal.SIGKILL
        (part,) = tmp_path.glob("net.chai.*.part")  # else it was killed before there was anything to lose
        part.unlink()
        assert (tmp_path / "net.chai").read_bytes() == before
    assert chai.Net(tmp_path / "net.chai").outputs == ["c"]
    done = _python(tmp_path, RUN, *arguments)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "net.chai").read_bytes() != before and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("limit", [0, 100, 4000])
def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path, limit: int) -> None:
    arguments, before = _small(tmp_path)
    assert len(before) > 4000
    done = _python(tmp_path, FULL, str(limit), *arguments)
    assert (done.returncode, done.stdout) == (74, "")
    assert done.stderr.splitlines()[-1] == "error: net.chai: File too large"
    assert (tmp_path / "net.chai").read_bytes() == before
    assert not list(tmp_path.glob("*.part"))
