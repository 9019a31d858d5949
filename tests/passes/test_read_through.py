"""An InnerProduct reads the blob before a Flatten or Reshape; nobody else notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from chai.passes.rewrite import read_through, rewrite
from tests.passes.common import facts, make, same, types

FC = "inner_product_param { num_output: 3 }"
THROUGH = {
    "a Flatten": "f Flatten data -> f",
    "a Reshape that copies the first axis": "f Reshape data -> f : reshape_param { shape { dim: 0 dim: -1 } }",
    "a Reshape from axis 1": "f Reshape data -> f : reshape_param { axis: 1 shape { dim: 7 dim: 15 } }",
    "two of them": "g Flatten data -> g\nf Reshape g -> f : reshape_param { shape { dim: 0 dim: 5 dim: 3 dim: 7 } }",
}


@pytest.mark.parametrize("lines", THROUGH.values(), ids=THROUGH)
def test_what_is_read_through(tmp_path: Path, lines: str) -> None:
    graph = make(tmp_path, f"{lines}\nfc InnerProduct f -> y : {FC}")
    after = read_through(graph)
    assert types(after) == ["InnerProduct"] and after.layer("fc").bottoms == ("data",)
    assert set(after.folded) == {layer.tops[0] for layer in graph.layers[1:-1]}
    assert set(after.folded.values()) == {"fc"} == set(rewrite(graph).folded.values())
    same(graph, after)


STAYS = {
    "another first axis": f"f Reshape data -> f : reshape_param {{ shape {{ dim: 1 dim: -1 }} }}\nfc InnerProduct f -> y : {FC}",
    "fewer axes": f"f Flatten data -> f : flatten_param {{ axis: 2 }}\nfc InnerProduct f -> y : {FC}",
    "another axis": f"f Flatten data -> f\nfc InnerProduct f -> y : {FC.replace('}', 'axis: 0 }')}",
    "another layer": "f Flatten data -> f\nt TanH f -> y",
}


@pytest.mark.parametrize("lines", STAYS.values(), ids=STAYS)
def test_what_is_not(tmp_path: Path, lines: str) -> None:
    graph = make(tmp_path, lines)
    assert facts(read_through(graph)) == facts(graph)


@pytest.mark.parametrize("outputs", [["y", "t"], ["f", "y"]])
def test_a_flatten_that_others_read_stays(tmp_path: Path, outputs: list[str]) -> None:
    graph = make(tmp_path, f"f Flatten data -> f\nfc InnerProduct f -> y : {FC}\nt TanH f -> t")
    graph.outputs = outputs
    after = read_through(graph)
    assert types(after) == ["Flatten", "InnerProduct", "TanH"] and not after.folded
    assert after.layer("fc").bottoms == ("data",)
    same(graph, after)
