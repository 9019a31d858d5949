"""Progress, tables and JSON."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

import chai
from chai.cli import output
from chai.cli.output import Schema
from chai.fixed import Coarser
from chai.util import log
from chai.util.table import plain, quantity
from tests.conftest import HANG

SHORT = 0.3  # seconds for another thread to do what it must not do


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
    steps = []

    class Bar:
        def __init__(self, what: str, total: int | None, bytes: bool) -> None:
            steps.append(what)

        def update(self, done: int, total: int | None) -> None:
            steps.append(str(done))

        def stop(self) -> None:
            steps.append("stopped")

    clock(monkeypatch, 1.1)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(output, "_Bar", Bar)
    for i in output.progress(range(5), 5, "images"):
        if i == 3:
            break
    assert steps == ["images", "1", "2", "3", "stopped"]


def test_work_within_other_work_shares_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, 3)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.meter("images") as outer, output.meter("cycles [bold]\x1b[1m") as inner:
        outer(1, 3)
        display = output._Bar.display
        inner(50, 200)
        assert [(task.description, task.completed, task.total) for task in display.tasks] == [
            ("images", 1, 3),
            (r"cycles \[bold]\x1b[1m", 50, 200),
        ]
        assert output._Bar.display is display and len(display.tasks) == 2
    assert output._Bar.display is None and not display.tasks and not display.live.is_started


def test_threads_that_begin_at_once_share_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a segment's simulation and the command that counts its images."""
    bars: list[output._Bar] = []
    original, threads = output._display, list[threading.Thread]()

    def display(bytes: bool) -> object:
        if not threads:
            threads.append(threading.Thread(target=lambda: bars.append(output._Bar("cycles", 200, bytes=False))))
            threads[0].start()
            threads[0].join(SHORT)
        return original(bytes)

    monkeypatch.setattr(output, "_display", display)
    bars.append(output._Bar("images", 3, bytes=False))
    threads[0].join(HANG)
    try:
        assert sorted(task.description for task in output._Bar.display.tasks) == ["cycles", "images"]
    finally:
        for bar in bars:
            bar.stop()
    assert output._Bar.display is None


def test_long_work_of_the_library_is_shown_by_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> str:
        clock(monkeypatch, 11)
        with log.meter("cycles") as tell:
            tell(50, 200)
        return capsys.readouterr().err

    assert work() == ""
    monkeypatch.setattr(log, "_meter", None)  # put back at the end
    output.start_logging(verbose=False)
    assert work() == "cycles: 50 of 200, about 33 s left\n"
    output.start_logging(verbose=False, quiet=True)
    assert work() == ""


def test_bytes_are_told_in_megabytes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock(monkeypatch, 11)
    with output.meter("weights", bytes=True) as tell:
        tell(13_400_000, 53_500_000)
        tell(26_750_000, None)
    assert capsys.readouterr().err.splitlines() == [
        "weights: 13.4 MB of 53.5 MB, about 33 s left",
        "weights: 26.8 MB",
    ]
    bar = output._Bar("weights", None, bytes=True)
    bar.update(13_400_000, 53_500_000)
    percentage = output._Bar.display.tasks[0].percentage
    bar.stop()
    assert percentage == pytest.approx(25.0, abs=0.1)


class Pair(NamedTuple):
    x: float
    y: tuple[int, ...]


@dataclass(frozen=True)
class NotFinite(Schema):
    schema = "chai.x/1"
    a: float = float("nan")
    b: tuple[float, ...] = (1.5, float("inf"))
    c: dict[str, Any] = field(default_factory=lambda: {"d": (float("-inf"), 2)})
    e: list[Any] = field(default_factory=lambda: [Pair(float("nan"), (3, 4)), Coarser(5, 0.5)])


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.as_json(NotFinite())
    content = json.loads(capsys.readouterr().out, parse_constant=lambda c: pytest.fail(c))
    assert content == {
        "schema": "chai.x/1",
        "chai": chai.__version__,
        "a": None,
        "b": [1.5, None],
        "c": {"d": [None, 2]},
        "e": [{"x": None, "y": [3, 4]}, {"channels": 5, "decibels": 0.5}],
    }


def test_columns_of_a_piped_table_align_where_letters_become_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [["gr\xf6\xdfe", "1x2", "3"], ["conv", "10x20", "45"], ["\u732b\x1b", "", "6"]]
    output.table(["n\xe4me", "size", "MACs"], rows, "llr")
    assert capsys.readouterr().out.splitlines() == [
        r"n\xe4me      size   MACs",
        r"gr\xf6\xdfe  1x2       3",
        r"conv         10x20    45",
        r"\u732b\x1b             6",
    ]


def test_plain_tables_align() -> None:
    assert plain(["a", "bb"], [["long", "1"], ["x", "22"]], "lr") == "a     bb\nlong   1\nx     22"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (947, "947"), (999.4, "999"), (999.5, "1 k")),
        *((999_499, "999 k"), (999_500, "1 M"), (999_950, "1 M"), (1_000_000, "1 M"), (5_217_280, "5.22 M")),
        *((999_499_999, "999 M"), (999_500_000, "1 G"), (1_582_671_872, "1.58 G"), (1_234_000_000_000, "1.23 T")),
    ],
)
def test_quantities(value: float, text: str) -> None:
    assert quantity(value) == text
