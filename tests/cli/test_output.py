"""Progress, tables and JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import field
from typing import Any

import pytest

from chai.cli import output
from chai.cli.schemas import Schema
from chai.util.lazy_dataclass import dataclass
from chai.util.table import plain, quantity


def clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every look at the clock is ``seconds`` after the last one."""
    times = iter(range(10_000))
    monkeypatch.setattr(output, "monotonic", lambda: next(times) * seconds)


def test_nothing_is_said_of_quick_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock(monkeypatch, 0.01)
    assert list(output.progress(range(50), 50, "images")) == list(range(50))
    assert capsys.readouterr().err == ""


def test_a_line_every_ten_seconds_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock(monkeypatch, 1.5)
    assert list(output.progress(iter(range(20)), 20, "images")) == list(range(20))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["images: 6 of 20, about 24 s left", "images: 13 of 20, about 11 s left"]
    clock(monkeypatch, 1.5)
    assert list(output.progress(range(20), 20, "images", quiet=True)) == list(range(20))
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Bar:
        task_ids = (0,)

        def update(self, task: int, completed: int, total: int | None) -> None:
            made.append(completed)

        def stop(self) -> None:
            made.append("stopped")

    clock(monkeypatch, 1.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(output, "_bar", lambda *described: Bar())
    for i in output.progress(range(5), 5, "images"):
        if i == 3:
            break
    assert made == [1, 2, 3, "stopped"]


def test_the_bar_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    bar = output._bar("images", 3)
    bar.update(bar.task_ids[0], completed=2)
    bar.stop()
    assert bar.tasks[0].completed == 2


def test_bytes_are_told_in_megabytes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock(monkeypatch, 11)
    with output.meter("weights", bytes=True) as tell:
        tell(13_400_000, 53_500_000)
        tell(26_750_000, None)
    assert capsys.readouterr().err.splitlines() == [
        "weights: 13.4 MB of 53.5 MB, about 33 s left",
        "weights: 26.8 MB",
    ]
    bar = output._bar("weights", None, True)
    bar.update(bar.task_ids[0], completed=13_400_000, total=53_500_000)
    bar.stop()
    assert bar.tasks[0].percentage == pytest.approx(25.0, abs=0.1)


@dataclass(frozen=True)
class NotFinite(Schema):
    schema = "chai.x/1"
    a: float = float("nan")
    b: tuple[float, ...] = (1.5, float("inf"))
    c: dict[str, Any] = field(default_factory=lambda: {"d": (float("-inf"), 2)})


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.as_json(NotFinite())
    found = json.loads(capsys.readouterr().out, parse_constant=lambda c: pytest.fail(c))
    assert found == {"schema": "chai.x/1", "a": None, "b": [1.5, None], "c": {"d": [None, 2]}}


def test_plain_tables_align() -> None:
    assert plain(["a", "bb"], [["long", "1"], ["x", "22"]], "lr") == "a     bb\nlong   1\nx     22"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (947, "947"), (1_000_000, "1 M"), (1_582_671_872, "1.58 G"), (5_217_280, "5.22 M")]
)
def test_quantities(value: float, text: str) -> None:
    assert quantity(value) == text
