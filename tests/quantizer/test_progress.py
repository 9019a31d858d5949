"""A search that was interrupted ends with the same files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import ParseError, UsageError
from chai.quantizer import quantize
from chai.quantizer.build import Built, RecipeBuilder
from chai.quantizer.progress import Known
from chai.quantizer.recipe import Recipe
from chai.util.data.journal import Journal, _line
from chai.util.paths import resource

DIGITS = resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")


class Killed(BaseException):
    """What a kill is to a process; nothing catches it."""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Recipe]:
    """The recipes that are judged; a fifth one is not survived where ``built`` begins with None."""
    seen: list[Any] = []
    judged = RecipeBuilder.judged

    def counted(self: RecipeBuilder, recipe: Recipe) -> Built:
        if seen[:1] == [None] and len(seen) == 5:
            raise Killed
        seen.append(recipe)
        return judged(self, recipe)

    monkeypatch.setattr(RecipeBuilder, "judged", counted)
    return seen


def run(folder: Path, name: str, images: int = 12, **options: Any) -> Any:
    """The digits network, quantised; what was written."""
    inputs = np.random.default_rng(11).random((images, 1, 8, 8), np.float32)
    result = quantize(*DIGITS, [inputs[:5], inputs[5:]], folder / name / "net.prototxt", bits=6, **options)
    return result, result.prototxt.read_bytes(), result.caffemodel.read_bytes()


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name in ("whole", "again"):
        (tmp_path / name).mkdir()


def test_an_interrupted_search_ends_as_if_it_had_not_been(tmp_path: Path, built: list[Any]) -> None:
    whole, prototxt, weights = run(tmp_path, "whole")
    once = len(built)
    built[:] = [None]
    with pytest.raises(Killed):
        run(tmp_path, "again", journal=tmp_path / "j")
    built.clear()
    result, *files = run(tmp_path, "again", journal=tmp_path / "j")
    assert files == [prototxt, weights]
    assert result.tried == whole.tried and result.built.recipe == whole.built.recipe
    assert len(built) == once - 4
    built.clear()
    assert run(tmp_path, "again", journal=tmp_path / "j")[1:] == (prototxt, weights)
    assert built == []


@pytest.mark.parametrize(("method", "other", "field"), [("after", "behind", "ranges"), ("kept", "moved", "bias")])
def test_a_journal_with_recipes_of_another_version_is_refused(
    tmp_path: Path, built: list[Any], method: str, other: str, field: str
) -> None:
    """Their costs would never be found again."""
    run(tmp_path, "whole", journal=tmp_path / "j", effort="fast")
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    head, *records = [{k: v for k, v in line.items() if k not in ("crc", "schema")} for line in lines]
    assert any(f'"{method}"' in record["recipe"] for record in records)
    with Journal(tmp_path / "older", head, key="recipe") as older:
        older.add([{**record, "recipe": record["recipe"].replace(method, other)} for record in records])
    with pytest.raises(
        UsageError, match=rf"recipe of another version of chai\.{field}: {other} is not implemented"
    ) as caught:
        run(tmp_path, "again", journal=tmp_path / "older", effort="fast")
    assert "--restart" in str(caught.value.hint)
    built.clear()
    run(tmp_path, "again", journal=tmp_path / "older", effort="fast", restart=True)
    assert built


def test_the_costs_in_the_journal_are_exact(tmp_path: Path) -> None:
    result, *_ = run(tmp_path, "whole", journal=tmp_path / "j", effort="fast")
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()[1:]]
    assert [(Recipe(**json.loads(x["recipe"])), float(np.mean(x["costs"]))) for x in lines] == result.tried
    assert all(len(x["costs"]) == 12 for x in lines)


def test_other_images_options_or_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path, "whole", journal=tmp_path / "j", effort="fast")
    with pytest.raises(UsageError, match=r"is of another run: its .*images differ"):
        run(tmp_path, "again", journal=tmp_path / "j", effort="fast", images=13)
    with pytest.raises(UsageError, match="is of another run: its options differ"):
        run(tmp_path, "again", journal=tmp_path / "j", effort="fast", seed=5)
    run(tmp_path, "again", journal=tmp_path / "j", effort="fast", seed=5, restart=True)
    monkeypatch.setattr(chai, "__version__", "0.0.9")
    with pytest.raises(UsageError, match="is of another run: its version of chai differ"):
        run(tmp_path, "again", journal=tmp_path / "j", effort="fast", seed=5)


def test_a_custom_layer_that_computes_something_else_is_another_run(tmp_path: Path) -> None:
    def layer(scale: float) -> Any:
        def some_classes(x: Any) -> None:
            x.top[0][...] = scale * x.bottom[0].reshape(len(x.bottom[0]), -1)[:, :10]

        return {"gemm": some_classes}

    run(tmp_path, "whole", journal=tmp_path / "j", effort="fast", custom=layer(1.0))
    run(tmp_path, "again", journal=tmp_path / "j", effort="fast", custom=layer(1.0))
    with pytest.raises(UsageError, match="is of another run: its float outputs differ"):
        run(tmp_path, "again", journal=tmp_path / "j", effort="fast", custom=layer(0.5))


BAD = [None, 1.0, "abc", [], [0.5] * 11, [0.5] * 13, [0.5] * 11 + [float("nan")], [0.5] * 11 + [10**400], [0.5] * 11 + ["1"],
       [[0.5]] * 12, [True] * 12]  # fmt: skip


@pytest.mark.parametrize("costs", BAD, ids=lambda costs: repr(costs)[:12])
@pytest.mark.parametrize("part", ["costs", "softened"])
def test_a_journal_with_other_numbers_is_refused(tmp_path: Path, part: str, costs: Any) -> None:
    """Even with the right checksums: it may come from a stranger."""
    path = tmp_path / "j"
    Known(path, {}, images=12).close()
    name, other = (json.dumps(Recipe(ranges=ranges).to_json(), sort_keys=True) for ranges in ("mse", "max"))
    record = {"recipe": name, "costs": [0.5] * 12, "softened": [0.5] * 12}
    with path.open("ab") as file:
        file.write(_line({**record, "recipe": other}) + _line({**record, part: costs}))
    with pytest.raises(ParseError, match=f"recipe {re.escape(name)}: expected 12 finite numbers") as refused:
        Known(path, {}, images=12)
    assert refused.value.path == str(path)
    Known(path, {}, restart=True, images=12).close()  # and the file is not locked
