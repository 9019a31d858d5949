"""The tutorial of docs/custom_layers.md, step by step: its prototxt, its function, its command, what it prints."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import chai
from chai.plugins.xchange import FIELDS
from tests.conftest import HANG, ROOT, need_models

DOCUMENT = (ROOT / "docs" / "custom_layers.md").read_text()
TUTORIAL = DOCUMENT[DOCUMENT.index("## Tutorial") : DOCUMENT.index("## Layers that are shipped")]


def block(begin: str) -> str:
    """The one code block of the tutorial that begins so."""
    (code,) = [b for b in re.findall(r"```\w*\n(.*?)```", TUTORIAL, re.DOTALL) if b.startswith(begin)]
    return str(code)


@pytest.fixture
def step1(tmp_path: Path) -> Path:
    """GoogLeNet's prototxt with its classifier marked, the rest untouched."""
    text = (need_models() / "googlenet" / "deploy.prototxt").read_text()
    layers = re.split(r"(?m)^(?=layer \{)", text)
    (index,) = [i for i, layer in enumerate(layers) if 'name: "loss3/classifier"' in layer]
    layers[index] = block("layer {")
    (tmp_path / "net.prototxt").write_text("".join(layers))
    return tmp_path / "net.prototxt"


def test_the_command_of_the_tutorial_finds_the_camel(tmp_path: Path, step1: Path) -> None:
    """Steps 2 and 3, in a process of its own: the file is written and named, nothing is rebuilt."""
    folder = need_models() / "googlenet"
    for name, source in (
        ("weights.caffemodel", folder),
        ("camel.jpg", folder / "images"),
        ("synset_words.txt", need_models()),
    ):
        (tmp_path / name).symlink_to(source / name)
    marked = block("# my_layers.py").replace("import chai", "import chai\nprint('my own gemm is loaded')")
    (tmp_path / "my_layers.py").write_text(marked)
    command = block("chai run").replace("\\\n", " ").split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "chai", *command],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={k: v for k, v in os.environ.items() if not k.startswith("CHAI_")} | {"COLUMNS": "120"},
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "my own gemm is loaded" in done.stdout
    assert block("camel.jpg").strip() in done.stdout
    ms = r"(\d+\.\d{6}) ms"
    report = re.search(r"\[INFOx\] Total.*", done.stderr, re.DOTALL)
    assert report, done.stderr
    lines = re.fullmatch(
        r"\[INFOx\] Total Number of Custom layers : 1\n\n\[INFOx\] Custom Layer - 1 : loss3/classifier\n"
        rf"\[PERFM\] Unpack layer Latency : {ms}\n\[PERFM\] Custom layer Latency : {ms}\n"
        rf"\[PERFM\] Pack   layer Latency : {ms}\n\s*",
        report.group(),
    )
    assert lines, report.group()
    unpack, custom, pack = map(float, lines.groups())
    assert unpack >= 0 and custom > 0 and pack == 0
    assert re.sub(r"\d+\.\d{6}", "0", block("[INFOx]")) == re.sub(r"\d+\.\d{6}", "0", report.group().rstrip() + "\n")


def test_the_layer_runs_on_the_host_between_eight_bits_and_softmax(
    step1: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = need_models() / "googlenet"
    with chai.Net(step1, folder / "weights.caffemodel", device="emulator") as net:
        data = np.load(folder / "cases" / "camel" / "input.npy")
        scores = net.forward(data)["prob"]
        perf = chai.getPerfInfo(net)
        engines = net.schedule.engines()
        assert net.offload.partition.reasons["loss3/classifier"] == "a custom layer"
    assert scores.argmax() == 354 and scores.max() > 0.9
    assert engines[0] == "host:Pack"
    assert engines[-4:] == ["fpga:Pooling", "host:Unpack", "host:gemm", "host:Softmax"]
    assert {e for e in engines if e.startswith("host:")} == {
        "host:Pack", "host:Unpack", "host:gemm", "host:Softmax",
    }  # fmt: skip
    (step,) = perf.custom
    unpack, pack = perf.conversions(step)
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("[")] == [
        "[INFOx] Total Number of Custom layers : 1",
        "[INFOx] Custom Layer - 1 : loss3/classifier",
        f"[PERFM] Unpack layer Latency : {unpack:f} ms",
        f"[PERFM] Custom layer Latency : {step.ms:f} ms",
        f"[PERFM] Pack   layer Latency : {pack:f} ms",
    ]


def test_the_reference_has_every_option_and_no_field_that_is_not_there() -> None:
    reference = DOCUMENT[DOCUMENT.index("## The decorator") : DOCUMENT.index("## Capabilities")]
    first = {name for row in re.findall(r"(?m)^\| (`.*?`) \|", reference) for name in re.findall(r"`(\w+)", row)}
    options = {p.name for p in inspect.signature(chai.custom).parameters.values() if p.name != "type"}
    assert options <= first
    fields = reference[reference.index("## What the function sees") :].split("\n## ")[0]
    named = {n for row in re.findall(r"(?m)^\| (`.*?`) \|", fields) for n in re.findall(r"`(\w+)", row)}
    assert named <= {*FIELDS, "param"}
    (signature,) = re.findall(r"`@f\.impl\((.*?)\)`", reference)
    assert signature.replace('"', "'") == ", ".join(
        str(p).split(":")[0] if p.default is p.empty else f"{p.name}={p.default!r}"
        for p in list(inspect.signature(chai.plugins.definition.CustomType.impl).parameters.values())[1:]
    )


def test_the_files_that_the_document_names_are_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", DOCUMENT):
        assert (ROOT / "docs" / link).exists(), link
    for anchor in re.findall(r"\]\(#([^)]+)\)", DOCUMENT):
        heads = [
            re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"(?m)^#+ (.*)$", DOCUMENT)
        ]
        assert anchor in heads, anchor
