"""A refused command line says what to do; an option that would do nothing is refused; a missing file is exit code 2."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chai
from chai.artifact.save import save
from chai.cli import COMMANDS, main
from chai.cli.parsing import Parser
from chai.util.paths import resource
from tests.cli.test_evaluate_kinds import INPUT
from tests.evaluate.test_outputs import CONV, SSD
from tests.test_imports import FILES, PACKAGE

NET, WEIGHTS = resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")
IMAGE = sorted(resource("prototxt", "digits_images").glob("*_7.png"))[0]
FEATURES = """
name: "features"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file of each kind that the command lines below name."""
    folder = tmp_path_factory.mktemp("refusals")
    shutil.copy(IMAGE, folder / "x.png")
    np.save(folder / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    (folder / "features.prototxt").write_text(FEATURES)
    (folder / "boxes.prototxt").write_text(INPUT + SSD)
    (folder / "map.prototxt").write_text(INPUT + CONV)
    Image.new("RGB", (40, 30)).save(folder / "photo.png")
    (folder / "labels.txt").write_text("a\nb\n")
    (folder / "folder").mkdir()
    with chai.Net("digits", device="null", calibrate=np.ones((1, 1, 8, 8), np.float32)) as net:
        save(net, folder / "net.chai")
    fixed = folder / "fixed.prototxt"
    args = ["digits", "--calibration", str(IMAGE), "--effort", "fast", "-q", "-o", str(fixed)]
    assert main(["quantize", *args]) == 0
    return folder


@pytest.fixture
def here(files: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(files)
    return files


RUN, EVALUATE, QUANTIZE = "run digits -q -i x.png", "evaluate digits -q --jobs 1 --images x.png", "quantize digits -q"
QUANTIZE += " --calibration x.png -o q.prototxt"
RANDOM = "-q --random-weights -i x.png"

NOTHING = [  # a command line, the option in it that would do nothing, and why
    ("run digits -i x.png --threshold 0.9", "none of its outputs has boxes"),
    (f"run features.prototxt {RANDOM} --top 3", "none of its outputs has boxes or scores of classes"),
    (f"run features.prototxt {RANDOM} --labels labels.txt", "none of its outputs has boxes or scores of classes"),
    (f"run features.prototxt {RANDOM} --draw out", "none of its outputs has boxes or scores of classes or a map"),
    ("run digits -i x.npy --draw out", "for .npy inputs"),
    *((f"run digits -i x.npy {option}", "for .npy inputs") for option in (
        "--resize 8x8", "--crop 8x8", "--channels gray", "--mean 1", "--mean-file x.npy", "--raw-scale 1", "--scale 2",
        "--fast-decode")),
    ("run digits -i x.png --fast-decode", "where no image is a JPEG"),
    *((f"run digits -i x.png --device float {option}", "on device float") for option in (
        "--overlay pynq-z2", "--engine pool1=host", "--place cost", "--bits 6", "--scheme Xilinx", "--calibration x.png")),
    (f"run lenet {RANDOM} --autotune", "which has no custom layers"),
    (f"run lenet {RANDOM} --no-jit", "which has no custom layers"),
    (f"{RUN} --random-weights", "where there are weights"),
    (f"{RUN} --repeat 3", "--perf --repeat 3"),
    *((f"run net.chai -i x.png {option}", "which is compiled") for option in (
        "--shape data=1x1x8x8", "--phase TEST", "--stage a", "--engine pool1=host", "--place cost", "--bits 8", "--scheme Xilinx",
        "--calibration x.png", "--random-weights")),
    *((f"run fixed.prototxt -i x.png {option}", "brings its formats") for option in (
        "--bits 6", "--scheme DynamicFixed", "--calibration x.png")),
    *((f"show digits {option}", "nothing is planned") for option in (
        "--bits 6", "--scheme Xilinx", "--autotune", "--no-jit", "--listing", "--host-model x.json")),
    ("show digits --params --json", "which has them"),
    ("show digits --params --dot", "with --dot"),
    ("show digits --params --overlay pynq-z2", "with --overlay"),
    ("show digits --dot --overlay pynq-z2", "with --overlay"),
    ("show fixed.prototxt --overlay pynq-z2 --bits 6", "brings its formats"),
    ("show lenet --no-jit --overlay pynq-z2", "which has no custom layers"),
    ("show lenet --autotune --overlay pynq-z2", "which has no custom layers"),
    *((f"show digits --source classifier {option}", "with --source") for option in (
        "--overlay pynq-z2", "--engine pool1=host", "--place cost", "--html x.html", "--params", "--bits 6")),
    *((f"show net.chai {option}", "which is compiled") for option in (
        "--batch 2", "--dot", "--params", "--engine pool1=host", "--place cost", "--autotune", "--no-jit", "--bits 6",
        "--stage a")),
    *((f"check digits --custom gemm {option}", "with --custom gemm, a layer type") for option in (
        "-i x.png", "--limit 1", "--calibration x.png", "--bound 3", "--agreement 1", "--html x.html", "--png x.png",
        "--overlay pynq-z2", "--mean 3")),
    ("check digits -q -i x.npy --scale 2", "for .npy inputs"),
    ("check map.prototxt map.caffemodel -q -i photo.png --agreement 0.9", "none of its outputs are scores of classes"),
    ("check fixed.prototxt -q -i x.png --bits 6", "brings its formats"),
    ("check map.prototxt map.caffemodel -q -i photo.png --no-jit", "which has no custom layers"),
    (f"{EVALUATE} --threshold 0.5", "where the output is no boxes"),
    ("evaluate map.prototxt map.caffemodel -q --images photo.png --labels labels.txt", "the output is map"),
    (f"{EVALUATE} --scheduler tcp://localhost:1", "--jobs does nothing with --scheduler"),
    (f"{EVALUATE} --restart", "without a journal"),
    (f"{EVALUATE} --device float", "against float says nothing"),
    ("evaluate digits --images x.npy --scale 2", "for .npy inputs"),
    ("evaluate net.chai --images x.png --calibration x.png", "which is compiled"),
    ("evaluate net.chai --images x.png --bits 6", "which is compiled"),
    ("evaluate map.prototxt map.caffemodel -q --images photo.png --autotune", "which has no custom layers"),
    (f"{QUANTIZE} --restart", "without a journal"),
    (f"{QUANTIZE} --budget 10", "without --bits mixed"),
    (f"{QUANTIZE} --layer-bits classifier=8", "does nothing with --bits 8"),
    ("compile digits -o x.chai --no-jit", "without --calibration"),
    ("compile digits -o x.chai --autotune", "without --calibration"),
    ("compile fixed.prototxt -o x.chai --bits 6", "brings its formats"),
    ("compile map.prototxt map.caffemodel -o x.chai --calibration photo.png --no-jit", "which has no custom layers"),
    ("bench digits --rounds 1 --overlay pynq-z2", "on device float"),
    ("bench net.chai --rounds 1 --against opencv", "which is compiled"),
    ("bench digits --rounds 1 --device null --processor-time", "leaves out what device null does"),
    *((f"bench digits {option}", "is an option of python -m tools.bench")
      for option in ("--int8", "--peak", "--all", "--roofline=r.svg", "--history=h.jsonl")),
    ("fetch --list googlenet", "with googlenet"),
    ("fetch --force", "without the name of a network"),
    ("devices --device float", "without --test"),
    ("devices --overlay pynq-z2", "without --test"),
    ("devices --repeat 3", "without --test"),
    ("devices --measure --repeat 3", "with --measure"),
    ("devices -o x.json", "without --measure"),
    ("devices --measure --test", "with --measure"),
    ("devices --measure --json", "with --measure"),
    ("overlay build pynq-z2 -o x --scripts-only --run", "with --scripts-only"),
]  # fmt: skip
MISSING = [  # a command line with a file that is not there
    "run no.prototxt -i x.png", "run no.chai -i x.png", "run digits no.caffemodel -i x.png", "run digits -i no.png",
    f"{RUN} --labels no.txt", f"{RUN} --mean-file no.npy", f"{RUN} --mean-file no.binaryproto", f"{RUN} --custom no.py",
    f"{RUN} --calibration no", f"{RUN} --overlay no.json", "show no.prototxt", "show no.chai", "show digits --custom no",
    "check digits -i no.png", "check digits --custom no.py -i x.png", f"{EVALUATE} --truth no.txt",
    f"{EVALUATE} --labels no.txt", "evaluate digits --images no", f"{EVALUATE} --reference no.prototxt no.caffemodel",
    "quantize digits -o q.prototxt --calibration no", "compile digits --labels no.txt -o x.chai",
    "compile digits --calibration no -o x.chai", "estimate no.csv", "bench no.prototxt", "layers --custom no.py",
    "bench digits --device emulator --overlay no.json", "devices --test --overlay no.json", "run digits -q -i x.png -o no/x.npz",
    "estimate layers.csv -o no/x.csv",
]  # fmt: skip
WRONG = [  # any other that is refused, and words of its hint
    ("googlenet -i x.jpg", "googlenet is a network: chai run googlenet -i x.jpg"),
    ("digits", "digits is a network: chai show digits"),
    ("net.prototxt net.caffemodel --image a.png", "chai run net.prototxt net.caffemodel --image a.png"),
    ("rnu digits", "did you mean chai run?"),
    ("run https://example.org/net.prototxt -i x.png", "curl -O https://example.org/net.prototxt"),
    ("run digits -i http://example.org/a.jpg", "curl -O http://example.org/a.jpg"),
    ("run digits -i x.png --labels=ftp://example.org/l.txt", "curl -O ftp://example.org/l.txt"),
    ("run googlenet -i x.png", "chai fetch googlenet"),
    ("run features.prototxt -i x.png", "--random-weights"),
    ("run digits -i folder", "looked for .jpg"),
    ("run folder -i x.png", "name the file in it"),
    ("run digits -i x.png --top 0", "--help"),
    ("run digits -i x.png --batch 0", "--help"),
    ("run digits -i x.png --perf --repeat 0", "--help"),
    ("run digits -i x.png --threshold 2", "--help"),
    ("run digits -i x.png --draw x.gif", "--draw x.png"),
    ("run digits -i x.png --draw x.png", "name another folder"),
    ("run digits -i x.png --engine pool1=gpu", "chai show lists"),
    ("run digits -i x.png --engine nothing=host", "chai show lists them"),
    ("run digits -i x.png --place nothing.json", "chai devices --measure -o board.json"),
    ("run digits -i x.png --engine prob=fpga", "leave it on the host: prob=host"),
    ("run digits -i x.png --shape data=0x1", "e.g. --shape data=1x3x224x224"),
    ("run digits -i x.png --mean 1 --mean-file x.npy", "--help"),
    ("run digits -i x.png --mean 1,2", "one number for all channels"),
    ("run digits -i x.png --mean ,", "--help"),
    ("run digits -i x.png --scale inf", "pixels are 0 to 255"),
    ("run digits -i x.png --resize 4x4 --crop 8x8", "resize to 8x8 or more"),
    ("run digits -i x.png --crop 4x4", "make crop (or resize)"),
    ("run digits -i x.png --overlay pynq", "did you mean"),
    ("run digits -i x.png --device pink", "devices: "),
    ("run digits -i x.png -o folder", "name a file"),
    ("show digits --batch 0", "--help"),
    ("show digits --batch -1 --overlay pynq-z2", "--help"),
    ("show digits --source nothing", "chai show lists them"),
    ("show net.chai --source classifier", "name what it was compiled from"),
    ("show digits --source classifier", "its code is at"),
    ("check digits", "chai check NET WEIGHTS --custom TYPE"),
    ("check digits --custom nothing", "custom types here: gemm"),
    ("check digits -i x.png --agreement 3", "--help"),
    (f"{EVALUATE} --output prob", "e.g. --output prob=scores"),
    (f"{EVALUATE} --output prob=boxes", "--output prob=scores"),
    (f"{EVALUATE} --output nothing=map", "its outputs: prob"),
    (f"{EVALUATE} --timeout 0", "the default is 600"),
    (f"{EVALUATE} --truth folder", "lines of: file name"),
    (f"{EVALUATE} --truth labels2.txt", "the first is x.png"),
    (f"{QUANTIZE} --layer-bits classifier", "chai show lists"),
    (f"{QUANTIZE} --seed -3", "the default is 0"),
    ("quantize digits -q --calibration x.png -o q.txt", "name it q.prototxt"),
    ("compile digits -o x.bin", "-o x.chai"),
    ("compile net.chai -o x.chai", "name what it was compiled from"),
    ("bench digits --threads 9999", "--threads 1,2"),
    ("fetch googlenett", "did you mean googlenet?"),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _weights(files: Path) -> None:
    """map.caffemodel, and a truth that knows none of the images."""
    from chai.parser.caffemodel import write_caffemodel

    with chai.Net(files / "map.prototxt", device="float") as net:
        layers = [(name, net.graph.layer(name).type, [*blobs]) for name, blobs in net.params.items()]
        write_caffemodel(files / "map.caffemodel", "map", layers)
    (files / "labels2.txt").write_text("other.png 3\n")


def told(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    """Return exit code and messages of a command line; bench needs a Python that has not loaded numpy."""
    if line.startswith("bench"):
        command = [sys.executable, "-m", "chai", *line.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr.splitlines()
    code = main(line.split())
    return code, capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(("line", "why"), NOTHING, ids=[line for line, _ in NOTHING])
def test_an_option_that_would_do_nothing_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], line: str, why: str
) -> None:
    code, messages = told(line, capsys)
    assert code == 2, messages
    assert why in "\n".join(messages)
    assert messages[-1].startswith("hint: ")


@pytest.mark.parametrize("line", MISSING)
def test_a_file_that_is_not_there_is_exit_code_2(here: Path, capsys: pytest.CaptureFixture[str], line: str) -> None:
    code, messages = told(line, capsys)
    assert code == 2, messages
    assert "no/x." in messages[-2] or "'no" in messages[-2], messages
    assert messages[-1].startswith("hint: ")


@pytest.mark.parametrize(("line", "hint"), WRONG, ids=[line for line, _ in WRONG])
def test_a_refusal_says_what_to_do(here: Path, capsys: pytest.CaptureFixture[str], line: str, hint: str) -> None:
    code, messages = told(line, capsys)
    assert code in (2, 69), messages
    assert messages[-1].startswith("hint: ")
    assert any(words in messages[-1] for words in hint.split("|")), messages


@pytest.mark.parametrize(
    ("command", "rest"),
    [
        ("run", "-i x.png"),
        ("check", "-i x.png"),
        ("evaluate", "--images x.png"),
        ("quantize", "--calibration x.png -o q.prototxt"),
        ("compile", "-o q.chai"),
    ],
)
def test_missing_weights_are_asked_for_in_the_commands_own_words(
    here: Path, capsys: pytest.CaptureFixture[str], command: str, rest: str
) -> None:
    code, messages = told(f"{command} features.prototxt {rest}", capsys)
    assert code == 2
    error = f"error: no weights: chai {command} features.prototxt WEIGHTS.caffemodel {rest.split()[0]} "
    assert [line.startswith(error) for line in messages] == [True, *([False] if command == "run" else [])], messages


# -- every option, every refusal

ACTS = {  # options that always do something, or whose command refuses them elsewhere
    "--custom": "its code is run", "--strict": "a check", "--phase": "chooses layers", "--stage": "chooses layers",
    "--shape": "sets an input's size", "--image": "what is run", "--images": "what is run", "--batch": "images of a pass",
    "--limit": "images that are used", "--device": "where it runs", "--overlay": "what it runs on", "--json": "the output",
    "--output": "a file, or the blob that is evaluated", "--perf": "prints times", "--perf-csv": "a file",
    "--trace": "a file", "--html": "a file", "--png": "a file", "--journal": "a file",
    "--bound": "a goal", "--truth": "refused if it knows no image", "--reference": "float's files",
    "--timeout": "a bound", "--chaidnn": "fields that are written", "--effort": "how much is tried", "--seed": "positions",
    "--rounds": "passes", "--threads": "of each engine", "--processor-time": "the clock", "--start": "figures",
    "--against": "the peers", "--dir": "where files are", "--test": "the test", "--measure": "the figures",
    "--source": "the output", "--scheduler": "the workers", "--detect": "a layer",
    "--anchors": "refused without a head", "--view": "makes the image a video", "--live": "makes the image a video",
    "--raw": "makes the image a video, else refused", "--judge": "refused without boxes",
}  # fmt: skip
IMAGES = {"--resize", "--crop", "--channels", "--mean", "--mean-file", "--raw-scale", "--scale", "--fast-decode"}
ALSO = {  # in these commands, too
    "quantize": {*IMAGES, "--calibration", "--bits", "--scheme"},  # the first go into the card of what is written
    "compile": {*IMAGES, "--calibration", "--labels"},
    "overlay": {"--clock", "--ooc", "--scripts-only"},
}
ALIKE = {"check", "evaluate", "compile"}  # have run's checks of preprocessing, formats and engines
SHARED = {*IMAGES, "--calibration", "--bits", "--scheme", "--engine", "--place", "--autotune", "--no-jit"}


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_always_does_something_or_is_refused_above(command: str) -> None:
    parser = Parser(prog=command, add_help=False)
    import_module(f"chai.cli.{command}").arguments(parser)
    options = {action.option_strings[-1] for action in parser._actions if action.option_strings}
    refused = {word.split("=")[0] for line, _ in NOTHING for word in line.split() if line.split()[0] == command}
    refused |= SHARED & {word for line, _ in NOTHING for word in line.split()} if command in ALIKE else set()
    assert options - {*ACTS} - ALSO.get(command, set()) - refused == set()


UNHINTED = {  # refusals without a hint, and why
    "evaluate/bench/start.py": "a note of chai bench: the engine is left out",
    "quantizer/observe.py": "chai quantize refuses a folder without images before",
    "quantizer/search.py": "from Python: its message lists what is expected",
    "quantizer/recipe.py": "from Python: its message lists what is expected",
    "evaluate/compare.py": "from Python", "evaluate/kinds.py": "from Python", "evaluate/check_custom.py": "from Python",
    "evaluate/replay.py": "from Python", "net.py": "from Python", "parser/assign.py": "from Python",
    "passes/cut.py": "from Python", "plugins/python/": "from Python", "runtime/": "from Python",
    "cv/": "from Python", "images/opencv.py": "from Python",
    "zoo/options.py": "from Python", "artifact/source.py": "from Python", "pycaffe/": "from Python", "chaidnn/": "from Python",
}  # fmt: skip


def test_each_refusal_has_a_hint_or_a_reason_to_have_none() -> None:
    for path in (path for path in FILES if "UsageError(" in path.read_text()):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        refusals = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "UsageError"]
        bare = [call.lineno for call in refusals if not any(keyword.arg == "hint" for keyword in call.keywords)]
        assert not bare or str(path.relative_to(PACKAGE)).startswith((*UNHINTED,)), f"{path}:{bare}"


def test_each_reason_is_for_a_file_with_refusals() -> None:
    for place in UNHINTED:
        texts = [path.read_text() for path in FILES if str(path.relative_to(PACKAGE)).startswith(place)]
        assert any("UsageError(" in text for text in texts), place
