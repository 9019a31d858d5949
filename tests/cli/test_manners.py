"""Exit codes, streams, pipes, start-up: what holds for every command."""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from chai.cli import COMMANDS
from chai.env import env
from tests.cli.conftest import InProcess

HEAVY = ("numpy", "numba", "PIL", "google", "rich", "argparse", "logging", "dataclasses", "typing", "re")
BARE = """
import sys
before = set(sys.modules)  # old protobuf has the interpreter itself import the package google
from chai.cli import main
main({args!r})
print(sorted(set(sys.modules) - before), file=sys.stderr)
"""


def modules(*args: str) -> list[str]:
    """Which modules a command has loaded when it ends."""
    code = BARE.format(args=list(args))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded: list[str] = ast.literal_eval(done.stderr.strip().splitlines()[-1])
    return loaded


def own(loaded: list[str]) -> list[str]:
    return [name for name in loaded if name.split(".")[0] == "chai" and not name.startswith("chai.layers.")]


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_loads_nothing(option: str) -> None:
    loaded = modules(option)
    assert own(loaded) == ["chai", "chai.cli", "chai.text"]
    assert set(loaded).isdisjoint(HEAVY)


def test_show_into_a_pipe_loads_little() -> None:
    loaded = modules("show", "googlenet")
    assert set(loaded).isdisjoint({"numpy", "numba", "PIL", "rich", "subprocess", "tempfile", "statistics", "difflib"})
    assert not [name for name in loaded if name.startswith("google.protobuf")]  # the schema is read without it
    unneeded = ("chai.net", "chai.artifact", "chai.runtime", "chai.codegen", "chai.devices", "chai.offload.planning")
    unneeded += ("chai.plugins.layer", "chai.plugins.failure", "chai.plugins.fields")  # of custom layers
    assert not [name for name in loaded if name.startswith(unneeded)]


def test_layers_and_devices_need_no_rich_in_a_pipe() -> None:
    assert set(modules("layers")).isdisjoint({"numba", "rich"})  # custom layers import numpy
    assert "rich" not in modules("devices")


def test_help_and_version(chai_command) -> None:  # type: ignore[no-untyped-def]
    top = chai_command("--help")
    assert top.returncode == 0
    assert all(name in top.stdout for name in COMMANDS)
    assert chai_command().stdout == top.stdout
    from chai import __version__

    assert chai_command("--version").stdout == f"chai {__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(chai_command, command: str) -> None:  # type: ignore[no-untyped-def]
    done = chai_command(command, "--help")
    assert done.returncode == 0
    assert f"chai {command}" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("also", [(), ("-v",)])
def test_every_command_refuses_a_variable_that_makes_no_sense(
    command: str,
    also: tuple[str, ...],
    in_process: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    needed = {
        "run": ["digits", "-i", "x.png"],
        "evaluate": ["digits", "--images", "x"],
        "quantize": ["digits", "--calibration", "x", "-o", "q.prototxt"],
        "compile": ["digits", "-o", "x.chai"],
        "estimate": ["x.csv"],
        "overlay": ["build", "pynq-z2", "-o", "x"],
    }
    needed |= {name: ["digits"] for name in ("show", "check")}
    monkeypatch.setenv("CHAI_DEBUG", "9")
    env.cache_clear()
    assert in_process(command, *needed.get(command, ()), *also) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: CHAI_DEBUG is '9'; expected a number from 0 to 3\nhint: unset CHAI_DEBUG\n"


def test_help_groups_its_options(chai_command) -> None:  # type: ignore[no-untyped-def]
    lines = chai_command("run", "--help").stdout.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    groups = ["network", "input", "preprocessing", "device", "output", "video", "timing", "general", "examples"]
    assert titles == [f"{name}:" for name in groups]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["shwo", "lenet"], 2, "did you mean chai show?"),
        (["predict", "lenet"], 2, "did you mean chai run?"),
        (["Infer"], 2, "did you mean chai run?"),
        (["classify"], 2, "did you mean chai run?"),
        (["test"], 2, "did you mean chai run?"),
        (["info", "lenet"], 2, "did you mean chai show?"),
        (["summary"], 2, "did you mean chai show?"),
        (["compare"], 2, "did you mean chai check?"),
        (["accuracy"], 2, "did you mean chai evaluate?"),
        (["export"], 2, "did you mean chai compile?"),
        (["download"], 2, "did you mean chai fetch?"),
        (["nonsense"], 2, "chai --help lists the commands"),
        (["run", "lenet", "-i", "x.png", "--drwa", "y.png"], 2, "hint: did you mean --draw?"),
        (["run", "lenet", "-i", "x.png", "--labells=x"], 2, "hint: did you mean --labels?"),
        (["show", "lenet", "--oberlay", "pynq-z2"], 2, "hint: did you mean --overlay?"),
        (["show", "googlent"], 2, "hint: did you mean googlenet?"),
        (["show", "zzz"], 2, "hint: shipped: "),
        (["show"], 2, "required: NET"),
        (["quantize", "lenet"], 2, "usage: chai quantize NET [WEIGHTS] --calibration DIR... -o OUT [options]"),
        (["quantize", "lenet"], 2, "hint: chai quantize --help lists the options"),
        (["run", "lenet", "--random-weights"], 2, "hint: -i IMAGE, for input data"),
        (["show", "googlenett"], 2, "no shipped network of that name"),
        (["show", "bad.prototxt"], 65, "bad.prototxt:2:42: "),
        (["run", "lenet", "-i", "x.png"], 2, "there is no image 'x.png'"),
        (["run", "lenet", "bad.prototxt", "-i", "bad.npy"], 65, "bad.prototxt"),
        (["run", "digits", "-i", "bad.png"], 65, "bad.png: this is no readable image"),
        (["run", "digits", "-i", "bad.npy"], 65, "bad.npy: this is no readable .npy"),
        (["run", "digits", "-i", "bad.png", "--device", "emulatr"], 69, "there is no device 'emulatr'"),
        (["run", "digits", "-i", "bad.png", "--custom", "nowhere"], 2, "there is no file or folder 'nowhere'"),
        (["show", "lenet", "--shape", "data=0x1"], 2, "--shape data=0x1"),
        (["show", "lenet", "--shape", "data=" + "1" * 4301], 2, "--shape data=111"),  # more digits than int() takes
        (["run", "googlenet", "-i", "bad.png"], 2, "no weights"),
    ],
)
def test_exit_codes_and_words(chai_command, tmp_path: Path, args: list[str], code: int, words: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "bad.prototxt").write_text('name: "x"\nlayer { name: "c" type: "Pooling" top: [ }\n')
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n not really")
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00")
    done = chai_command(*args)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert len(done.stdout.splitlines()) <= 1  # at most what is about to be run
    assert "Traceback" not in done.stderr


def test_an_error_shows_the_place_and_a_hint(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "data" type: "Input" top: "data" }\n'
        'layer { name: "conv2" type: "Convolution" bottom: "data" top: "c"\n'
        "  convolution_param { num_output: 4\n"
        '    kernel_size: "3x3" } }\n'
    )
    done = chai_command("show", "net.prototxt")
    assert done.returncode == 65
    assert done.stderr.splitlines() == [
        "error: net.prototxt:4:18: layer 'conv2': kernel_size: expected an integer, found \"3x3\"",
        '    4 |     kernel_size: "3x3" } }',
        "      |                  ^^^^^",
        "hint: write  kernel_h: 3  kernel_w: 3",
    ]


def test_a_piped_table_is_plain_complete_and_fits_80_columns(chai_command) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("show", "googlenet", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert "inception_4a/relu_5x5_reduce" in done.stdout


@pytest.mark.parametrize("columns", ["80", "120"])
def test_on_a_terminal_the_table_has_colour_and_fits(columns: str, tmp_path: Path) -> None:
    parent, child = pty.openpty()
    env = {**os.environ, "COLUMNS": columns, "TERM": "xterm-256color"}
    with subprocess.Popen(
        [sys.executable, "-m", "chai", "show", "digits"], stdout=child, stderr=subprocess.DEVNULL, env=env, cwd=tmp_path
    ) as process:
        os.close(child)
        text = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            text += part
        assert process.wait() == 0
    os.close(parent)
    import re

    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", text).decode()
    assert b"\x1b[" in text
    lines = [
        line.rstrip() for line in plain.splitlines() if not line.startswith("custom ")
    ]  # a path is as long as it is
    assert max(map(len, lines)) <= int(columns)
    assert "inception_b/output" in plain


def test_a_reader_that_stops_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m chai show googlenet | head -1", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["layer", "type", "out", "shape", "MACs", "engine"]
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line_and_74() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "chai", "show", "lenet", "-q"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert done.returncode == 74
        assert done.stderr.strip().splitlines() == ["error: No space left on device"]
        for unbuffered in ("", "1"):
            done = subprocess.run(
                [sys.executable, "-m", "chai", "show", "lenet"],
                stdout=subprocess.DEVNULL,
                stderr=full,
                env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
                check=False,
            )
            assert done.returncode == 74  # its hint is lost
        done = subprocess.run([sys.executable, "-m", "chai", "run", "--help"], stdout=full, check=False)
        assert done.returncode == 74


def test_a_closed_stdout_is_two_lines_and_74(tmp_path: Path) -> None:
    """`>&-`; the other streams may be closed: no file gets their numbers, and nothing is said to stderr."""
    command = f"{sys.executable} -m chai show lenet"
    done = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 74
    assert done.stderr.splitlines() == [
        "error: standard output is closed",
        "hint: > /dev/null drops what is printed",
    ]
    done = subprocess.run(f"{command} 2>&- <&-", shell=True, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "outputs  prob 1x10"
