"""Two engines that run apart, with arithmetic: whatever the order, the board's codes are the emulator's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import chai
from chai.codegen import compile
from chai.codegen.dependencies import NONE, dependencies
from chai.offload.schedule import DeviceStep
from tests.artifact.common import NETS, custom, data
from tests.conftest import need_models
from tests.passes.common import network
from tests.reference.engines import delaying

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

IMAGES = np.random.default_rng(3).random((2, 1, 8, 8)).astype(np.float32)
Pair = tuple[chai.Net, chai.Net]


def check(board: Any, nets: Pair, images: np.ndarray, seeds: int, victims: int) -> None:
    """So many random orders, and so many of the adversary's; ``blobs`` has every blob that is kept."""
    wanted = nets[0].forward(images)
    kept = dict(nets[0].blobs)
    tasks = max((len(s.tasks) for s in nets[1].schedule.steps if isinstance(s, DeviceStep)), default=0)
    orders = [Random(seed).choice for seed in range(seeds)]
    step = max(1, tasks // victims) if victims else tasks
    orders += [delaying(i) for i in range(0, tasks if victims else 0, step)]
    for number, choose in enumerate(orders):
        board.accelerator.choose, board.accelerator.random = choose, Random(number)
        outputs = nets[1].forward(images)
        assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted), number
        assert all(np.array_equal(nets[1].blobs[b], kept[b]) for b in kept), number


def digits(board: Any, **options: Any) -> Pair:
    options |= {"overlay": board.overlay.path, "calibrate": IMAGES}
    return chai.Net("digits", **options), chai.Net("digits", device="pynq", **options)


@pytest.mark.parametrize(("keep", "depth"), [("outputs", 4), ("all", 4), ("outputs", 1)])
def test_digits(board_of: Callable[..., Any], keep: str, depth: int) -> None:
    board = board_of(exact=False)
    board.accelerator.depth = depth
    check(board, digits(board, keep=keep), IMAGES, 12, 15)


@pytest.mark.slow
def test_digits_in_many_orders(board_of: Callable[..., Any]) -> None:
    board = board_of(exact=False)
    check(board, digits(board), IMAGES, 200, 15)


def small(board: Any, tmp_path: Path, name: str, keep: str) -> Pair:
    options: dict[str, Any] = {"custom": custom(), "overlay": board.overlay.path, "keep": keep}
    first, second = (network(tmp_path, NETS[name], device=device, **options) for device in ("emulator", "pynq"))
    for net in (first, second):
        net.calibrate(data())
    return first, second


@pytest.mark.parametrize("name", NETS)
def test_small_networks(board_of: Callable[..., Any], tmp_path: Path, name: str) -> None:
    board = board_of(exact=False)
    check(board, small(board, tmp_path, name, "outputs"), data(1), 4, 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_small_networks_in_many_orders(board_of: Callable[..., Any], tmp_path: Path, name: str) -> None:
    board = board_of(exact=False)
    for keep, board.accelerator.depth in (("outputs", 4), ("all", 1)):
        check(board, small(board, tmp_path, name, keep), data(1), 200, 20)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seeds"), [("lenet", 200), ("squeezenet_v1.1", 2), ("googlenet", 2)])
def test_real_networks(board_of: Callable[..., Any], name: str, seeds: int) -> None:
    """lenet has random weights: none are shipped."""
    board = board_of(memory=256 << 20, exact=False)
    files: tuple[Any, ...] = (name,)
    if name != "lenet":
        folder = need_models() / name
        files = folder / "deploy.prototxt", folder / "weights.caffemodel"
    options: dict[str, Any] = {"overlay": board.overlay.path, "batch": 2}
    nets = chai.Net(*files, **options), chai.Net(*files, device="pynq", **options)
    images = np.random.default_rng(5).standard_normal(nets[0].shapes[nets[0].inputs[0]]).astype(np.float32) * 50
    for net in nets:
        net.calibrate(images)
    check(board, nets, images, seeds, 1)


def test_a_chain_without_counts_is_wrong(board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "dependencies", lambda *arguments: [NONE] * len(dependencies(*arguments)))
    with pytest.raises(AssertionError):
        check(board, digits(board), IMAGES, 3, 3)


@pytest.mark.parametrize("engine", ["array", "window"])
def test_a_chain_without_the_counts_of_an_engine_is_wrong(
    board: Any, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Of the array, and of the window engine: the other engine's Tasks and its own are too early."""

    def lacking(*arguments: Any) -> Any:
        return [after._replace(**{engine: 0}) for after in dependencies(*arguments)]

    monkeypatch.setattr(compile, "dependencies", lacking)
    with pytest.raises(AssertionError):
        check(board, digits(board), IMAGES, 3, 15)


def test_tasks_of_both_engines_are_in_flight_at_once(board: Any) -> None:
    nets = digits(board)
    nets[1].forward(IMAGES)
    seen = []
    board.accelerator.choose = lambda moves: seen.append(moves) or moves[0]  # type: ignore[func-returns-value]
    nets[1].forward(IMAGES)
    assert any(len(moves) > 1 for moves in seen)
    assert any(sum(what == "step" for what, _ in moves) > 1 for moves in seen)  # two Tasks in flight
