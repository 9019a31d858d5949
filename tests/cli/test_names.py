"""Names from files are shown, not obeyed: every command and every repr, on a pipe and on a terminal."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import pty
import re
import sys
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import chai
from chai import pycaffe
from chai.cli import COMMANDS, main
from chai.errors import ParseError, UsageError
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.loading import load_custom
from chai.plugins.registry import REGISTRY
from chai.text import csv_cell, visible
from chai.util.log import logger

# a command for the terminal, its title, C1 in one character, and every way to turn the direction of writing
EVIL = "\x1b[31m\x1b]0;owned\x07\r\n\x08\x9b2J\x85\x7f\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
LETTERS = (
    "\u732b \u05d7\u05ea\u05d5\u05dc \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0ba8\u0bbf \u00a0na\u00efve"
)
# rich's, for tables and bars, and argparse's since Python 3.14
COLOUR = re.compile(r"\x1b\[(?:0|1|(?:1;)?3\d|38;5;\d+|(?:1;)?38;2;\d+;\d+;\d+)?m")
BAR = re.compile(
    r"\r?\x1b\[(?:\?25[lh]|1A|2K)(?:\r(?!\n))?"
)  # the progress of a slow machine: hide the cursor, go up, clear the line


def evil(name: str) -> str:
    """A hostile name that is still one's own."""
    return f"{name}{EVIL}{name}"


def obeyed(text: str, terminal: bool = False) -> set[str]:
    """Control and bidirectional characters that a terminal would obey, but for those that chai writes itself."""
    own = BAR.sub("", COLOUR.sub("", text)).replace("\r\n", "\n") if terminal else text
    bidi = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    marks = "\u061c\u200e\u200f\u2028\u2029"
    return {
        c
        for c in own
        if (unicodedata.category(c) == "Cc" and c != "\n") or unicodedata.bidirectional(c) in bidi or c in marks
    }


def quoted(text: str) -> str:
    """A string of a prototxt: every byte as an octal escape."""
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


def layer(name: str, type: str, bottom: str, top: str, more: str = "") -> str:
    wires = (f"bottom: {quoted(bottom)} " if bottom else "") + f"top: {quoted(top)}"
    return f"layer {{ name: {quoted(name)} type: {quoted(type)} {wires} {more} }}\n"


CUSTOM = f"""import chai
@chai.custom({evil("mine")!r}, jit=False, args={{"mode": str}})
def mine(x):
    if x.in_ptrs[0].sum() == 0:
        raise ValueError(x.layername + x.params["mode"] + {EVIL!r})
    x.out_ptrs[0][:] = x.in_ptrs[0] * 2
"""


class Case:
    """Files with hostile names in every place that a name can have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stem = "n\x1b[31m\u202e\x07"
        self.net, self.weights = folder / f"{stem}.prototxt", folder / f"{stem}.caffemodel"
        self.images, self.labels = folder / f"images{EVIL[:9]}", folder / f"labels{EVIL[:9]}"
        self.custom = folder / "layers\x1b[31m.py"
        self.out = folder / f"out{EVIL[:9]}"
        data, conv, ip, last = map(evil, ("data", "conv", "ip", "prob"))
        text = (
            f"name: {quoted(evil('net'))}\n"
            + layer(data, "Input", "", data, "input_param { shape { dim: [1, 1, 8, 8] } }")
            + layer(conv, "Convolution", data, conv, "convolution_param { num_output: 2 kernel_size: 3 }")
            + layer(evil("lrn"), "LRN", conv, evil("lrn"))
            + layer(
                evil("custom"),
                evil("mine"),
                evil("lrn"),
                evil("custom"),
                f"user_defined_layer: true xcustom_param {{ top_dim: [1, 2, 6, 6] string_args: {quoted(evil('mode'))} }}",
            )
            + layer(ip, "InnerProduct", evil("custom"), ip, "inner_product_param { num_output: 3 }")
            + layer(last, "Softmax", ip, last)
        )
        self.net.write_text(text)
        rng = np.random.default_rng(1)
        sizes = {conv: ((2, 1, 3, 3), (2,)), ip: ((3, 72), (3,))}
        blobs = [(name, "", [rng.normal(size=s).astype(np.float32) for s in shapes]) for name, shapes in sizes.items()]
        write_caffemodel(self.weights, evil("net"), blobs)
        self.images.mkdir()
        for i in range(2):
            pixels = rng.integers(0, 255, (8, 8), np.uint8)
            Image.fromarray(pixels).save(self.images / f"im{EVIL.replace('/', '')}{i}.png")
        (self.images / f"torn{EVIL[:9]}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        self.labels.write_text(f"{LETTERS}\na\x1b[31mb\u202ec\x07\nthree\n", "utf-8")
        self.custom.write_text(CUSTOM, "utf-8")
        self.list = folder / f"list{EVIL[:9]}.csv"
        self.list.write_text(f"SOFTMAX\nCONV,8,8,1,3,3,1,1,0,0,6,6,2,1,{EVIL[:5]}\n", "utf-8")

    def lines(self) -> Iterator[list[Any]]:
        """Command lines: each command, in each of its forms that prints names."""
        net, one = [self.net, self.weights], sorted(self.images.iterdir())[0]
        labels, compiled = ["--labels", self.labels], self.out.with_suffix(".chai")
        engine = ["--engine", f"{evil('conv')}=host"]
        yield ["show", *net, "--params"]
        yield ["show", *net, "-v", "--shape", f"{evil('data')}=1x1x8x8"]
        yield ["show", *net, "--overlay", "pynq-z2"]
        yield ["show", *net, "--overlay", "pynq-z2", "--json"]
        yield ["show", self.net, "--dot"]
        yield ["show", self.net, "--json"]
        files = ["-o", f"{self.out}.npz", "--trace", f"{self.out}.json", "--perf-csv", f"{self.out}.csv"]
        yield ["run", *net, "-i", self.images, *labels, "--perf", "--draw", f"{self.out}-drawn", *files]
        yield ["run", *net, "-i", one, "-v", *engine]
        yield ["run", *net, "-i", one, "--json", "--perf", *labels]
        yield ["run", self.net, "-i", one, "--random-weights"]
        yield ["run", self.net, "-i", one]
        yield ["check", *net, "-i", one, "--html", f"{self.out}.html", "--png", f"{self.out}.png"]
        yield ["check", *net, "--custom", evil("mine")]
        yield ["check", *net, "--custom", evil("other")]
        written = f"{self.out}-q.prototxt"
        yield ["quantize", *net, "--calibration", self.images, "-o", written, "--effort", "fast", "-v"]
        yield ["compile", *net, "--calibration", one, "-o", compiled, *labels]
        yield ["show", compiled]
        yield ["run", compiled, "-i", one]
        yield [
            "evaluate",
            *net,
            "--images",
            self.images,
            "--jobs",
            1,
            "--custom",
            self.custom,
            "--journal",
            f"{self.out}.jsonl",
        ]
        yield ["bench", *net, "--rounds", 1, "--against", "none"]
        yield ["estimate", self.list, "-o", f"{self.out}-times.csv"]
        yield ["layers"]
        yield ["overlay", "build", EVIL, "-o", EVIL]
        yield ["devices", "--device", EVIL]
        yield ["devices", "--test", "--overlay", self.folder / EVIL]
        yield ["fetch", EVIL]
        yield ["fetch", "--list", "--dir", self.folder / EVIL[:9]]
        yield ["demo", "-o", f"{self.out}-demo.png", "--device", EVIL]
        # what is wrong names what is there
        yield ["show", self.folder / f"none{EVIL}"]
        yield ["show", self.custom]
        yield ["show", self.net, "--engine", EVIL]
        yield ["show", self.net, EVIL, EVIL]
        yield ["run", *net, "-i", self.folder / EVIL]
        yield ["run", *net, "-i", one, "-o", self.folder / EVIL / "x.npz"]
        yield ["run", *net, "-i", one, "--mean-file", self.labels]
        yield ["run", *net, "-i", one, "--overlay", self.labels]
        yield ["compile", *net, "-o", EVIL]
        yield [EVIL]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("names"))


@pytest.fixture
def registry(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hostile custom type, for as long as the test."""
    monkeypatch.setattr(REGISTRY, "types", dict(REGISTRY.types))
    monkeypatch.setattr(REGISTRY, "files", dict(REGISTRY.files))
    load_custom(case.custom)


def printed(args: list[Any], terminal: bool, monkeypatch: pytest.MonkeyPatch, columns: int = 200) -> tuple[int, str]:
    """The exit code of a command and all that it wrote to stdout and stderr."""
    parent, child = pty.openpty() if terminal else os.pipe()
    parts: list[bytes] = []

    def read() -> None:
        while True:
            try:
                part = os.read(parent, 1 << 16)
            except OSError:  # a terminal whose other end is closed
                break
            if not part:
                break
            parts.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    stream = io.TextIOWrapper(os.fdopen(child, "wb", 0), "utf-8", errors="strict", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("COLORTERM", "truecolor")
        patch.setenv("COLUMNS", str(columns))
        code = main([str(a) for a in args])
        stream.close()
    reader.join()
    os.close(parent)
    return code, b"".join(parts).decode("utf-8")


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_no_command_obeys_a_name(case: Case, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit codes say that the commands got as far as they should: 65 where an image is torn."""
    monkeypatch.chdir(case.folder)
    codes: dict[str, list[int]] = {}
    for args in case.lines():
        code, text = printed(args, terminal, monkeypatch)
        shown = " ".join(visible(str(a)) for a in args)
        assert not obeyed(text, terminal), f"{shown}\n{text!r}"
        assert "a fault in chai" not in text, f"{shown}\n{text}"
        assert text.strip(), shown
        codes.setdefault(str(args[0]), []).append(code)
    assert set(COMMANDS) | {EVIL} == set(codes)
    assert codes["show"][:6] == [0] * 6
    assert codes["run"][:4] == [65, 0, 0, 0]
    assert codes["quantize"] == [65]
    assert codes["compile"] == [0, 2]
    assert codes["evaluate"] == [65]
    assert all(70 not in exits for exits in codes.values())


@pytest.mark.usefixtures("registry")
def test_letters_of_any_script_and_colours_stay(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["run", case.net, case.weights, "-i", case.images, "--labels", case.labels]
    assert LETTERS in printed(args, False, monkeypatch)[1]
    assert LETTERS in printed(args, True, monkeypatch)[1]
    assert COLOUR.search(printed(["show", case.net], True, monkeypatch)[1])
    assert r"a\x1b[31mb\u202ec\x07" in printed(args, False, monkeypatch)[1]


@pytest.mark.usefixtures("registry")
def test_files_written_for_people_obey_no_name(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """DOT and CSV in a text editor; a trace is JSON, whose own escapes do."""
    monkeypatch.chdir(case.folder)
    out = case.folder / "plain"
    files = ["--trace", f"{out}.json", "--perf-csv", f"{out}.csv"]
    one = sorted(case.images.iterdir())[0]
    assert printed(["run", case.net, case.weights, "-i", one, *files], False, monkeypatch)[0] == 0
    assert not obeyed(Path(f"{out}.csv").read_text("utf-8"))
    trace = Path(f"{out}.json").read_text("utf-8")
    assert not obeyed(trace)
    assert evil("conv") in {event["name"] for event in json.loads(trace)["traceEvents"]}
    html = ["check", case.net, case.weights, "-i", one, "--html", f"{out}.html"]
    assert printed(html, False, monkeypatch)[0] in (0, 1)
    assert not obeyed(Path(f"{out}.html").read_text("utf-8"))


@pytest.mark.usefixtures("registry")
def test_no_repr_obeys_a_name(case: Case) -> None:
    net = chai.Net(case.net, case.weights)
    net.forward(**{evil("data"): np.ones((1, 1, 8, 8), np.float32)})
    float_net = chai.Net(case.net, case.weights, device="float")
    things = [net, float_net, net.perf, net.schedule, *net.schedule.steps, *net.graph.layers, net.graph, net.card]
    things += [REGISTRY.find(evil("mine")), pycaffe.Net(str(case.net), str(case.weights), 1)]
    for thing in things:
        for text in (repr(thing), str(thing), *([thing._repr_html_()] if hasattr(thing, "_repr_html_") else [])):
            assert not obeyed(text), repr(text)


@pytest.mark.usefixtures("registry")
def test_no_exception_obeys_a_name(case: Case) -> None:
    for wrong in (
        lambda: chai.Net(evil("none")),
        lambda: chai.Net(case.net, case.net),
        lambda: chai.Net(case.custom),
        lambda: chai.Net(case.net, case.weights, engine={EVIL: "host"}).plan(),
        lambda: chai.Net(case.net, case.weights).forward(**{EVIL: np.ones(3)}),
        lambda: chai.Net(case.net, device="float").forward(**{evil("data"): np.ones((1, 1, 2, 2))}),
        lambda: chai.run_layer(chai.Net(case.net, case.weights), evil("custom"), [np.zeros((1, 2, 6, 6))]),
    ):
        with pytest.raises(Exception) as error:
            wrong()
        assert not obeyed(str(error.value)), str(error.value)
    error = ParseError(EVIL, path=EVIL, hint=EVIL, layer=EVIL)
    assert not obeyed(str(error) + error.headline)
    assert not obeyed(str(UsageError(EVIL, hint=EVIL)))


def test_no_warning_obeys_a_name(caplog: pytest.LogCaptureFixture) -> None:
    """For handlers of any program: the message is made visible before they get it."""
    with caplog.at_level(logging.INFO, "chai"):
        logger("chai.custom").warning("layer %s: %d", EVIL, 3)
    assert not obeyed(caplog.text.removesuffix("\n"))
    assert caplog.records[0].getMessage() == f"layer {visible(EVIL)}: 3"


def test_every_logger_of_chai_makes_its_messages_visible() -> None:
    package = Path(chai.__file__).parent
    own = [f for f in package.rglob("*.py") if re.search(r"^\w+ = logging\.getLogger", f.read_text("utf-8"), re.M)]
    assert own == []


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_of_a_csv_file_is_no_formula(start: str) -> None:
    text = io.StringIO()
    csv.writer(text).writerow([csv_cell(f"{start}1+1"), csv_cell("conv1/3x3-5"), "-3"])
    cell, name, number = next(csv.reader(io.StringIO(text.getvalue())))
    assert cell[0] in "'\\"
    assert (name, number) == ("conv1/3x3-5", "-3")


def test_a_dot_label_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(
        layer('a"\\N&lt;b', "Input", "", "a", "input_param { shape { dim: 3 } }") + layer("r", "ReLU", "a", "r")
    )
    _, text = printed(["show", net, "--dot", "-q"], False, monkeypatch)
    assert r'label="a\"\\N&amp;lt;b\nInput 1"' in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1", "conv1"),
        (LETTERS, LETTERS),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x00\x1b\x7f\x80\x9f", r"\x00\x1b\x7f\x80\x9f"),
        ("\u202e\u2066\u200f\u2028", r"\u202e\u2066\u200f\u2028"),
        ("\udcff", r"\udcff"),
        (r"\x1b", r"\x1b"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown
