"""Everything that the README shows works as shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import chai
from chai import plugins
from chai.cli import COMMANDS, main
from chai.env import Env
from chai.parser.caffemodel import write_caffemodel
from chai.plugins.loading import load_custom, load_shipped
from chai.plugins.registry import Registry
from chai.zoo import networks
from chai.zoo.fetch import entry

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    command = (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1]
    assert "nox -t ci" in command
    assert f"\n{command}\n" in README


def test_commands_networks_and_variables_are_all_there() -> None:
    assert all(f"chai {c}" in README for c in COMMANDS)
    assert all(f"`{n}`" in README for n in networks.names())
    assert all(f"`CHAI_{name.upper()}`" in README for name in Env._fields)


def test_the_layer_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n# my_layers\.py\n(.*?)```", README, re.DOTALL)
    (tmp_path / "my_layers.py").write_text(code)
    load_shipped()  # the shipped layers go to the registry that stays
    monkeypatch.setattr(plugins.registry, "REGISTRY", Registry())
    x = np.random.default_rng(0).random((3, 1, 8, 8))
    load_custom(tmp_path / "my_layers.py")
    probabilities = chai.Net("digits", custom={"gemm": plugins.registry.REGISTRY.find("gemm").function}).forward(x)[
        "prob"
    ]
    monkeypatch.undo()
    assert np.allclose(probabilities, chai.Net("digits").forward(x)["prob"], atol=1e-6)


SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache as ``chai fetch googlenet`` leaves it, with random weights in place of the published ones."""
    cache = tmp_path_factory.mktemp("cache")
    published = entry("googlenet")
    assert published is not None
    with chai.Net("googlenet", device="float") as net:
        layers = [(name, net.graph.layer(name).type, [*blobs]) for name, blobs in net.params.items()]
        write_caffemodel(cache / published.file, net.name, layers)
    return cache


@pytest.mark.parametrize("code", SNIPPETS, ids=range(len(SNIPPETS)))
def test_each_snippet_runs_as_it_is(tmp_path: Path, fetched: Path, code: str) -> None:
    """In a folder with the two photos that they name, and in a Python of its own: some register layers."""
    for i, name in enumerate(("camel.jpg", "cat.jpg")):
        pixels = np.random.default_rng(i).integers(0, 256, (37, 53, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
    env = {**os.environ, "CHAI_CACHE": str(fetched), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "random weights" not in done.stderr
    if "print(" in code:
        assert re.match(r"\[\d+", done.stdout), done.stdout


def test_the_snippets_are_all_found() -> None:
    assert len(SNIPPETS) == README.count("```python") == 5
    assert sum("bvlc_googlenet.caffemodel" in code for code in SNIPPETS) == 3


def shown(command: str) -> list[str]:
    """Return the lines that the README shows for a command, without those that stand for others."""
    lines = (
        README.replace("```sh\n", "").replace("```\n```", "```").split(command + "\n", 1)[1].lstrip("`\n").splitlines()
    )
    return [line for line in lines[: lines.index("```")] if line != "..."]


def same(shown: str, printed: list[str]) -> bool:
    """Tell whether a line was printed, spacing of columns aside; what follows ", ..." may be anything."""
    begin, _, left_out = shown.partition(", ...")
    words = [" ".join(line.split()) for line in printed]
    begin = " ".join(begin.split())
    return any(line.startswith(begin) for line in words) if left_out or ", ..." in shown else begin in words


def test_the_demo_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in shown("$ chai demo") if not line.startswith("latency ")]
    assert len(lines) == 7 and [line for line in lines if not same(line, printed)] == []


def test_show_prints_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "googlenet", "--overlay", "pynq-z2"]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = shown("chai show googlenet --overlay pynq-z2")
    assert len(lines) == 14 and [line for line in lines if not same(line, printed)] == []


def test_the_wheels_for_a_board_without_internet_are_all() -> None:
    """Named one by one, as pip is told to look for no others; in the versions that are tested."""
    page = (ROOT / "docs" / "board.md").read_text()
    (command,) = re.findall(r"^pip download (.*?)\n[a-z]", page, re.DOTALL | re.MULTILINE)
    named = {re.split("=", word)[0] for word in command.split()}
    project = (ROOT / "pyproject.toml").read_text()
    (block,) = re.findall(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    needed = set(re.findall(r'"([a-z]+)', block))
    assert needed - named == {"numpy", "pillow"}, "those are the image's"
    for pin in ("protobuf", "numba"):
        (tested,) = re.findall(rf"^{pin}==(\S+)$", (ROOT / "constraints-board.txt").read_text(), re.MULTILINE)
        assert f" {pin}=={tested}" in command
