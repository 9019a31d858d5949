"""Recipes fitted on some images are judged on others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chai.overlay import load
from chai.passes.rewrite import fuse_relu
from chai.quantizer import PLAIN, Recipe
from chai.quantizer.build import RecipeBuilder
from chai.quantizer.groups import Codes
from chai.quantizer.observe import Observed, folded, observe
from chai.quantizer.progress import Known
from chai.quantizer.recipe import SearchStage
from chai.quantizer.search import _Progress, _search
from tests.passes.common import DEEP, network

LINES = f"""
a Convolution data -> a : {DEEP}
ra ReLU a -> a
b Convolution a -> b : {DEEP}
"""
SIZES = [3, 2, 4, 1, 2]  # images of each batch
FITTED = Recipe("max", "max", rounding="compensated", bias="tuned")


def batches(seed: int = 0) -> list[np.ndarray]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal((n, 3, 12, 14)).astype(np.float32) for n in SIZES]


def builder(folder: Path, data: list[np.ndarray], whole: bool = False) -> RecipeBuilder:
    """``whole``: the weights are whole codes."""
    net = network(folder, LINES, (3, 3, 12, 14))
    graph = fuse_relu(net.graph)
    for layer in graph.layers if whole else ():
        if layer.name in ("a", "b"):
            codes = np.rint(layer.blobs[0] / np.abs(layer.blobs[0]).max((1, 2, 3), keepdims=True) * 31)
            layer.blobs = [(codes / 32).astype(np.float32), *layer.blobs[1:]]
    return RecipeBuilder(
        graph, net.graph, observe(graph, [{"data": d} for d in data]), Codes(load(), "Xilinx", 6), {"a", "b"}
    )


def test_each_half_is_fitted_on_one_and_held_back_from_the_other(tmp_path: Path) -> None:
    data = batches()
    observed = builder(tmp_path, data).observed
    halves = folded(observed)
    assert [half.numbers for half in halves] == [[0, 2, 4, 1, 3], [1, 3, 0, 2, 4]]
    assert [half.fitted for half in halves] == [3, 2]
    for half in halves:
        for number, feeds, wanted in zip(half.numbers, half.batches, half.wanted):
            assert feeds["data"] is observed.batches[number]["data"]
            np.testing.assert_array_equal(feeds["data"], data[number])
            assert wanted is observed.wanted[number]
        mine = half.numbers[: half.fitted]
        assert all(r is observed.rows["b"][i] for r, i in zip(half.rows["b"], mine))
        np.testing.assert_array_equal(half.largest["data"], np.max([abs(data[i]).max((0, 2, 3)) for i in mine], 0))


def test_no_halves_of_one_batch(tmp_path: Path) -> None:
    recipe_builder = builder(tmp_path, batches()[:1])
    assert folded(recipe_builder.observed) == []
    np.testing.assert_array_equal(recipe_builder.judged(FITTED).costs, recipe_builder.build(FITTED).costs)


def test_where_nothing_has_to_be_fitted_both_ways_to_judge_agree(tmp_path: Path) -> None:
    """Weights that are whole codes stay what they are, whatever they are fitted on; costs keep the images' order."""
    recipe_builder = builder(tmp_path, batches(), whole=True)
    recipe = Recipe("max", "max", rounding="compensated")
    wanted = recipe_builder.build(recipe)
    assert len(wanted.costs) == sum(SIZES) and (wanted.costs > 0).all() and len(set(wanted.costs)) == sum(SIZES)
    judged = recipe_builder.judged(recipe)
    np.testing.assert_array_equal(judged.costs, wanted.costs)
    np.testing.assert_array_equal(judged.softened, wanted.softened)
    assert not judged.formats and wanted.formats


@pytest.mark.parametrize("recipe", [FITTED, Recipe("max", "max", 0.5)], ids=["fitted", "equalised"])
def test_an_image_says_nothing_of_what_is_fitted_to_judge_it(tmp_path: Path, recipe: Recipe) -> None:
    """Another batch 0 changes what batches 1 and 3 cost, which are judged by what 0, 2 and 4 make; not 2 and 4."""
    first, other = batches(), [batches(1)[0] * np.float32([1, 3, 0.3])[:, None, None], *batches()[1:]]
    costs, seen = [], list[Observed]()
    for data in (first, other):
        recipe_builder = builder(tmp_path, data)
        if seen:  # ranges are everybody's
            recipe_builder.observed.seen, recipe_builder.observed.in_front = seen[0].seen, seen[0].in_front
        seen.append(recipe_builder.observed)
        costs.append(np.split(recipe_builder.judged(recipe).costs, np.cumsum(SIZES)[:-1]))
    same = [np.array_equal(a, b) for a, b in zip(*costs)]
    assert same == [False, False, True, False, True]


def test_every_recipe_is_tried_on_both_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much worse it is than the best before it: each cost that is reported was measured."""
    draw = np.random.default_rng(4)
    recipe_builder = builder(tmp_path, [draw.standard_normal((17, 3, 12, 14)).astype(np.float32) for _ in range(2)])
    runs: list[tuple[Recipe, list[int]]] = []
    built = RecipeBuilder._built
    monkeypatch.setattr(
        RecipeBuilder,
        "_built",
        lambda self, recipe: runs.append((recipe, self.observed.numbers)) or built(self, recipe),
    )
    good, bad = {"ranges": "mse", "weights": "mse", "rounding": "compensated"}, {"rounding": "nearest", "bias": "mean"}
    progress = _Progress(lambda what, share: None, None, (), 1)
    kept, tried, _ = _search(
        recipe_builder, None, [SearchStage((good,)), SearchStage((bad,))], progress, Known(None, {})
    )
    costs = [cost for _, cost in tried]
    assert [best.recipe for best in kept] == [PLAIN, Recipe(**good)] and costs[2] > costs[1]
    assert runs == [(PLAIN, [0, 1]), *((recipe, half) for recipe, _ in tried[1:] for half in ([0, 1], [1, 0]))]
