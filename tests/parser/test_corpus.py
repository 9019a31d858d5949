"""A hundred and fifty prototxts of many forks: each gives a network or a sentence that says why not."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from chai.cli import main, output
from chai.errors import ChaiError
from chai.graph import Graph
from chai.parser.load import load_graph
from chai.passes.infer_shapes import infer_shapes
from chai.plugins.registry import Registry
from tests.conftest import report

GRAPHS = 143  # files that give a Graph
SHAPES = 128  # of these, files that say every size themselves
PLACE = re.compile(r":\d+:|layer '|input '")


def outcome(path: Path) -> str:
    """graph, shapes, or a refusal whose words have been checked."""
    try:
        graph = load_graph(path, Registry())
    except ChaiError as error:
        check(error, path)
        return type(error).__name__
    try:
        shapes = infer_shapes(graph)
    except ChaiError as error:
        check(error, path)
        check_shown(graph, path)
        return "graph"
    assert all(d > 0 for s in shapes.values() for d in s), path
    assert set(shapes) == {t for v in graph.layers for t in v.tops if not v.source or t in graph.inputs}
    return "shapes"


def check_shown(graph: Graph, path: Path) -> None:
    """chai show has a row for every layer of a network whose input size is not in the file, with ? where it matters."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(["show", "-q", str(path)]) == 0, path
    rows = printed.getvalue().splitlines()[1 : len(graph.layers) + 1]
    assert all(row.split()[:2] == [layer.name, layer.type] for row, layer in zip(rows, graph.layers)), path
    assert any("?" in row.split() for row in rows), path
    assert "the file does not say the size of input" in printed.getvalue(), path


def check(error: ChaiError, path: Path) -> None:
    """The file, a line or a layer or an input, and a reason."""
    headline = error.headline
    assert headline.startswith(f"{path}:"), headline
    rest = headline.removeprefix(str(path))
    assert PLACE.search(rest), headline
    assert len(re.sub(r"^[:\d ]*(layer '[^']*'[^:]*: )?", "", rest).split()) >= 3, headline
    assert "\n" not in headline


def test_every_file_gives_a_network_or_a_reason(
    corpus: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "start_logging", lambda *_: None)  # warnings are counted here
    listed = {entry["file"]: entry["status"] for entry in json.loads((corpus / "MANIFEST.json").read_text())}
    outcomes = {name: outcome(corpus / name) for name in listed}
    assert len(outcomes) == 156
    counts = {kind: list(outcomes.values()).count(kind) for kind in sorted(set(outcomes.values()))}
    graphs = counts["graph"] + counts["shapes"]
    report(f"corpus: {graphs} of {len(outcomes)} files give a Graph, {counts['shapes']} with all shapes; {counts}")
    assert graphs >= GRAPHS
    assert counts["shapes"] >= SHAPES
    refused = [n for n, status in listed.items() if status in ("bvlc", "ssd") and outcomes[n] == "ParseError"]
    assert refused == [], "files within Caffe's own schemas that are no text here"
    assert len([r for r in caplog.records if r.name == "chai.parser"]) <= len(outcomes)  # one warning per file at most
