"""Partition: as few changes of engine as possible, in small networks and in any."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from chai.graph import Graph
from chai.zoo.locate import read_graph
from tests.conftest import examples
from tests.passes.common import make, prototxt

from .divided import SAME, divide, parts

RULES = settings(max_examples=examples(75))


@pytest.mark.parametrize(
    ("lines", "segments"),
    [
        (
            f"""
            a Convolution data -> a : {SAME}
            b MVN data -> b
            c Convolution a -> c : {SAME}
            d MVN b -> d
            e Convolution c -> e : {SAME}
            """,
            [("fpga", "a c e"), ("host", "b d")],
        ),
        (  # branches that rejoin
            f"""
            a Convolution data -> a : {SAME}
            b Convolution a -> b : {SAME}
            c Convolution a -> c : {SAME}
            d Eltwise b c -> d
            e Eltwise a d -> e
            """,
            [("fpga", "a b c d e")],
        ),
        (  # a host layer in one branch: the other branch is done before it, not after
            f"""
            a Convolution data -> a : {SAME}
            b MVN a -> b
            c Convolution b -> c : {SAME}
            d Convolution a -> d : {SAME}
            e Eltwise c d -> e
            """,
            [("fpga", "a d"), ("host", "b"), ("fpga", "c e")],
        ),
        (  # host layers of two branches meet in one segment
            f"""
            a Convolution data -> a : {SAME}
            b MVN a -> b
            c Convolution a -> c : {SAME}
            d MVN c -> d
            e Eltwise b d -> e
            """,
            [("fpga", "a c"), ("host", "b d"), ("fpga", "e")],
        ),
        (  # the first layer of the file is not always the best beginning
            f"""
            a MVN data -> a
            b Convolution data -> b : {SAME}
            c MVN b -> c
            """,
            [("fpga", "b"), ("host", "a c")],
        ),
    ],
)
def test_as_few_changes_as_possible(tmp_path: Path, lines: str, segments: list[tuple[str, str]]) -> None:
    assert parts(divide(make(tmp_path, lines))) == segments


@st.composite
def graphs(draw: st.DrawFn) -> str:
    """Layers of both engines, each reading one or two blobs above it."""
    lines, blobs = [], ["data"]
    for i in range(draw(st.integers(1, 10))):
        first, second = (blobs[-1 - draw(st.integers(0, min(len(blobs) - 1, 4)))] for _ in range(2))
        lines.append(
            draw(
                st.sampled_from(
                    [
                        f"l{i} MVN {first} -> b{i}",
                        f"l{i} Convolution {first} -> b{i} : {SAME}",
                        f"l{i} Eltwise {first} {second} -> b{i} : eltwise_param {{ operation: SUM }}",
                        f"l{i} Eltwise {first} {second} -> b{i} : eltwise_param {{ operation: PROD }}",
                    ]
                )
            )
        )
        blobs.append(f"b{i}")
    return "\n".join(lines)


def fewest(graph: Graph, host: Mapping[str, str]) -> int:
    """Segments that no order can do without: each layer in the earliest one that its bottoms and its engine allow."""
    counts = []
    for start in ("host", "fpga"):
        at = {top: 0 for layer in graph.layers if layer.source for top in layer.tops}
        used = set()
        for layer in graph.layers:
            if not layer.source:
                engine = "host" if layer.name in host else "fpga"
                index = max(at[b] for b in layer.bottoms)
                index += (index % 2 == 0) != (engine == start)
                at.update(dict.fromkeys(layer.tops, index))
                used.add(index)
        counts.append(len(used))
    return min(counts)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graphs") / "net.prototxt"


@RULES
@given(lines=graphs())
def test_any_graph(file: Path, lines: str) -> None:
    """Every layer once, each after what it reads, engines in turn, a reason for each on the host, no path back."""
    file.write_text(prototxt(lines))
    graph = read_graph(file)
    division = divide(graph)
    wanted = [layer.name for layer in graph.layers if not layer.source]
    placed = [layer.name for s in division.segments for layer in s.layers]
    assert sorted(placed) == sorted(wanted)
    engines = [s.engine for s in division.segments]
    assert all(a != b for a, b in pairwise(engines))
    written = set(graph.inputs)
    for segment in division.segments:
        for layer in segment.layers:
            assert written.issuperset(layer.bottoms), layer.name
            written.update(layer.tops)
    assert set(division.reasons) == {layer.name for s in division.segments if s.engine == "host" for layer in s.layers}
    for segment in division.segments:
        left: set[str] = set()  # what a path has reached outside
        for layer in graph.layers:
            if layer in segment.layers:
                assert left.isdisjoint(layer.bottoms), layer.name
            elif any(b in left or b in {t for own in segment.layers for t in own.tops} for b in layer.bottoms):
                left.update(layer.tops)


@RULES
@given(lines=graphs())
def test_no_graph_changes_engines_more_often_than_it_must(file: Path, lines: str) -> None:
    file.write_text(prototxt(lines))
    graph = read_graph(file)
    division = divide(graph)
    assert len(division.segments) == fewest(graph, division.reasons)
