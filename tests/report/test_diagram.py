"""The drawing of a network: boxes never overlap, and no edge passes under a box that it does not belong to."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings, strategies as st

from chai.report import diagram
from chai.report.diagram import Node, svg
from tests.conftest import examples


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    count = draw(st.integers(1, 14))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    return count, draw(st.lists(st.sampled_from(pairs), max_size=25)) if pairs else []


def drawing(count: int, edges: list[tuple[int, int]]) -> ElementTree.Element:
    boxes = [
        Node(f"layer{i}", "ReLU 1x2x3x5", ("fpga", "host", "custom", "input", "-")[i % 5], "why" * (i % 2))
        for i in range(count)
    ]
    return ElementTree.fromstring(svg(boxes, edges))


def corners(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    rects = [r for r in root.iter("rect") if r.get("class") == "box"]
    return [
        (float(r.get("x", "")), float(r.get("y", "")), float(r.get("width", "")), float(r.get("height", "")))
        for r in rects
    ]


def ends(root: ElementTree.Element) -> list[list[float]]:
    """Start and end of each curve; a lane's vertical part is given by its own start."""
    return [[float(n) for n in re.findall(r"-?\d+\.?\d*", path.get("d", ""))] for path in root.iter("path")]


@settings(max_examples=examples(60))
@given(graphs())
def test_boxes_do_not_overlap_and_readers_are_below(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    boxes = corners(drawing(count, edges))
    assert len(boxes) == count
    for i, (x, y, w, h) in enumerate(boxes):
        for other_x, other_y, _, _ in boxes[:i]:
            assert abs(x - other_x) >= w or abs(y - other_y) >= h
    assert all(boxes[a][1] + boxes[a][3] < boxes[b][1] for a, b in edges)


@settings(max_examples=examples(60))
@given(graphs())
def test_every_edge_leaves_its_box_enters_its_box_and_passes_none(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    root = drawing(count, edges)
    boxes = corners(root)
    bottoms = {(round(x + w / 2, 1), y + h): i for i, (x, y, w, h) in enumerate(boxes)}
    tops = {(round(x + w / 2, 1), y): i for i, (x, y, w, h) in enumerate(boxes)}
    following: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for numbers in ends(root):
        if len(numbers) == 11:  # M x y V y: the lane through a layer, before its curve
            lane, top, bottom = numbers[0], numbers[1], numbers[2]
            assert not any(x < lane < x + w and top < y + h and y < bottom for x, y, w, h in boxes)
            following.setdefault((lane, top), []).append((lane, bottom))
        curve = numbers[-8:]
        following.setdefault((curve[0], curve[1]), []).append((curve[6], curve[7]))
    reached = set()
    for start, box in bottoms.items():
        points = list(following.get(start, []))
        while points:
            point = points.pop()
            if point in tops:
                reached.add((box, tops[point]))
            else:
                points += following[point]
    assert reached == set(edges)


def test_a_fork_and_its_join_are_drawn_level_by_level() -> None:
    root = drawing(5, [(0, 1), (0, 2), (1, 3), (2, 4), (3, 4)])
    rows = [y for _, y, _, _ in corners(root)]
    assert rows[0] < rows[1] == rows[2] < rows[3] < rows[4]


def test_names_are_escaped_and_long_ones_keep_both_ends() -> None:
    name = "<script>alert(1)</script>" + "x" * 60 + "/3x3"
    text = svg([Node(name, "Convolution", "fpga")], [])
    assert "<script>" not in text
    shown = [t.text or "" for t in ElementTree.fromstring(text).iter("text")]
    assert shown[0].startswith("<script>")
    assert shown[0].endswith("/3x3")
    assert ".." in shown[0]


def test_engine_and_reason_are_words_in_the_box() -> None:
    texts = [
        t.text
        for t in ElementTree.fromstring(svg([Node("norm1", "LRN 1x64x56x56", "host", "no LRN unit")], [])).iter("text")
    ]
    assert texts == ["norm1", "LRN 1x64x56x56", "host: no LRN unit"]


def test_edges_across_all_layers_take_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagram, "_MOST_LANES", 900)
    count = 300
    edges = [(i, i + 1) for i in range(count - 1)] + [(0, i) for i in range(2, count)]
    text = svg([Node("l", "ReLU", "host")] * count, edges)
    assert text.count("<path") <= len(edges) + diagram._MOST_LANES
