"""An Upsample reads what its Pooling read and wrote; nobody else misses the places of the maxima."""

from __future__ import annotations

from pathlib import Path

import pytest

from chai.passes.rewrite import rewrite, unpool
from tests.passes.common import facts, make, same, types

POOL = "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"
UP = "upsample_param { upsample_h: 5 upsample_w: 7 }"


@pytest.mark.parametrize(
    "between", ["", "t TanH p -> p\n", "t Pooling p -> p : pooling_param { pool: AVE kernel_size: 1 }\n"]
)
def test_places_that_only_an_upsample_reads(tmp_path: Path, between: str) -> None:
    graph = make(
        tmp_path, f"p Pooling data -> p m : {POOL}\n{between}u Upsample p m -> u : {UP}\nv Upsample p m -> v : {UP}"
    )
    after = unpool(graph)
    assert types(after) == types(graph) and after.layer("p").tops == ("p",)
    assert [after.layer(name).bottoms[1:] for name in "uv"] == [("data", "p")] * 2
    assert set(rewrite(graph).folded) == {"m"}
    same(graph, after)


STAYS = {
    "an output": f"p Pooling data -> p m : {POOL}\nu Upsample p p -> u : {UP}",
    "read by another layer": f"p Pooling data -> p m : {POOL}\nu Upsample p m -> u : {UP}\nt TanH m -> t",
    "of no pooling": f"p Pooling data -> p : {POOL}\nq AbsVal p -> q\nu Upsample p q -> u : {UP}",
    "moved themselves": f"p Pooling data -> p m : {POOL}\nu Upsample m p -> u : {UP}",
}


@pytest.mark.parametrize("lines", STAYS.values(), ids=STAYS)
def test_others_stay(tmp_path: Path, lines: str) -> None:
    graph = make(tmp_path, lines)
    assert facts(unpool(graph)) == facts(graph)
