"""The table of goals: which networks and engines it compares, and what its rows say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools.bench import goals
from tools.bench.engines import ENGINES


def figures(threads: int, noise: float, measurable: bool) -> dict[str, Any]:
    """Figures of a run in which the second peer has the best least time, and the first the best median."""
    times = {"chai": (2.0, 2.5), "opencv": (4.0, 4.5), "openvino": (3.0, 5.0)}
    run = {
        "threads": threads,
        "batch": 8,
        "noise": noise,
        "measurable": measurable,
        "share": None,
        "ms_per_image": {name: {"min": least, "median": median} for name, (least, median) in times.items()},
        "ratio": {name: {"min": times[name][0] / 2, "median": times[name][1] / 2.5} for name in ("opencv", "openvino")},
    }
    sets = {"chai": ["vnni"], "opencv": ["avx2"], "openvino": ["amx", "vnni"]}
    return {"runs": [run], "device": "emulator", "instructions": sets, "processor": "a processor"}


def test_a_row_has_the_peer_with_the_best_least_time() -> None:
    row = goals.cells("net", figures(1, 0.03, True), 1.5)
    assert row[:9] == ["net", "emulator", "1", "8", "2.00 (2.50)", "openvino", "3.00 (5.00)", "1.50", "2.00"]
    assert row[9:] == ["1.5", "met   vnni / amx+vnni"]
    assert goals.cells("net", figures(1, 0.2, True), 1.6)[10] == "no   vnni / amx+vnni, halves differ by 20%"
    assert goals.cells("net", figures(2, 0.03, False), 1.5)[7:9] == ["-", "-"]


def test_networks_are_of_the_folder_or_shipped(tmp_path: Path) -> None:
    assert goals.files("lenet", None) == goals.files("lenet", tmp_path) == ["lenet"]
    assert goals.files("cifar_resnet20", tmp_path) == []
    paths = [tmp_path / "lenet" / name for name in ("deploy.prototxt", "weights.caffemodel")]
    paths[0].parent.mkdir()
    for path in paths:
        path.touch()
    assert goals.files("lenet", tmp_path) == [*map(str, paths)]


def test_every_goal_is_measured_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs = []

    def measured(words: list[str], goal: goals.Goal, threads: int, batch: int, rounds: int, busy: bool) -> Any:
        assert {*goal.peers} <= ENGINES.keys()
        runs.append((words[0], goal.device, threads, batch, rounds, *goal.environment, busy))
        return figures(threads, 0, True)

    monkeypatch.setattr(goals, "measured", measured)
    assert goals.main(["--rounds", "7"]) == 0
    assert len({*runs}) == len(runs) > 20
    assert ("squeezenet_v1.1", "float", 2, 1, 7, False) in runs and ("digits", "emulator", 1, 1, 140, False) in runs
    assert ("googlenet", "emulator", 1, 1, 7, *goals.AVX2, False) in runs
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(runs) + 4 and "cifar_resnet20: not in a folder of trained networks" in lines
    assert lines[-1].startswith("a processor, load")
    runs.clear()
    assert goals.main(["--only", "lenet,vgg16", "--processor-time"]) == 0  # of one thread
    assert [(*run[:4], run[-1]) for run in runs] == [
        ("vgg16", "emulator", 1, 1, True),
        ("vgg16", "emulator", 1, 8, True),
        ("lenet", "emulator", 1, 1, True),
    ]
