"""The table of a pass, and the files that it is written to: CSV and a trace."""

from __future__ import annotations

import csv
from html.parser import HTMLParser
from pathlib import Path

import pytest

from chai.report import timeline
from chai.runtime.perf import CSV, PerfInfo, StepTime
from chai.text import visible

from .timed import ran

EXAMPLE = PerfInfo(
    (
        StepTime("Pack data", "Pack", "host", 0.5, 0, 9, ("data",), ("data",)),
        StepTime("conv", "conv", "fpga", 6.0, 12_000_000, 9, ("data",), ("c",), 0.5),
        StepTime("Unpack c", "Unpack", "host", 0.25, 0, 9, ("c",), ("c",), 6.5),
        StepTime('head, "last"', "gemm", "custom", 1.25, 0, 9, ("c",), ("h",), 6.75),
    ),
    10.0,
    3,
)


def test_the_table() -> None:
    assert str(EXAMPLE).splitlines() == [
        "step          type    engine     ms     %  MACs/s",
        "Pack data     Pack    host    0.500   6.2       -",
        "conv          conv    fpga    6.000  75.0   2.0 G",
        "Unpack c      Unpack  host    0.250   3.1       -",
        'head, "last"  gemm    custom  1.250  15.6       -',
        "",
        "time of  steps     ms      %",
        "fpga         1  6.000   75.0",
        "custom       1  1.250   15.6",
        "unpack       1  0.250    3.1",
        "pack         1  0.500    6.2",
        "total        4  8.000  100.0",
        "",
        "wall 10.000 ms   batch 3   3.333 ms/image   300.00 images/second",
    ]


def test_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    EXAMPLE.write_csv()
    assert (tmp_path / "layerwise_latency.csv").read_bytes().decode() == (
        "layer_name,latency,type,engine,share,macs,begin\n"
        "Pack data,0.500000,Pack,host,6.250,0,0.000000\n"
        "conv,6.000000,conv,fpga,75.000,12000000,0.500000\n"
        "Unpack c,0.250000,Unpack,host,3.125,0,6.500000\n"
        '"head, ""last""",1.250000,gemm,custom,15.625,0,6.750000\n'
    )
    assert CSV == "layerwise_latency.csv"


def test_the_file_of_a_network_is_read_back(tmp_path: Path) -> None:
    perf = ran(tmp_path, "three bottoms from the device, a top with three readers").perf
    perf.write_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(r["layer_name"], r["type"], r["engine"], int(r["macs"])) for r in rows] == [
        ("feed", "feed", "host", 0),
        *((s.name, s.type, "emulated" if s.engine == "fpga" else s.engine, s.macs) for s in perf.steps),
        ("between", "between", "host", 0),
    ]
    latencies = [perf.feed_ms, *(s.ms for s in perf.steps), perf.between_ms]
    assert [float(r["latency"]) for r in rows] == pytest.approx(latencies, abs=1e-6)
    assert [float(r["begin"]) for r in rows[1:-1]] == pytest.approx([s.begin for s in perf.steps], abs=1e-6)
    assert (rows[0]["begin"], rows[-1]["begin"]) == ("0.000000", "")
    assert sum(float(r["share"]) for r in rows) == pytest.approx(100, abs=1e-3 * len(rows))


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(OSError):
        EXAMPLE.write_csv(tmp_path / "t.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["t.csv"]


HOSTILE = 'a\x1b[31m\n[PERFM] <img src=x onerror="x">\u202e,'


class Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    perf = PerfInfo((StepTime(HOSTILE, HOSTILE, "custom", 1.0, 0, 4),), 2.0)
    shown = r'a\x1b[31m\n[PERFM] <img src=x onerror="x">\u202e,'
    assert f"[INFOx] Custom Layer - 1 : {shown}\n" in perf.text()
    assert f"[PERFM] Custom Layer - 1 : {shown}\n" in perf.text("docs")
    assert str(perf).splitlines()[1].split("  ")[:2] == [shown, shown]
    page = Tags(perf._repr_html_())
    table, drawing = {"table", "thead", "tbody", "tr", "th", "td"}, {"svg", "path", "text", "rect", "title"}
    assert set(page.tags) == {"div", "style", "p"} | table | drawing
    assert page.text.count(shown) == 4  # name and type, in the table and in the timeline
    perf.write_csv(tmp_path / "t.csv")
    with open(tmp_path / "t.csv", newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["layer_name"] == visible(HOSTILE)


def test_the_trace_has_custom_layers_in_a_lane_of_their_own(tmp_path: Path) -> None:
    perf = ran(tmp_path, "two in a row").perf
    events = timeline.chrome_trace(perf)["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [(lanes[e["tid"]], e["cat"], e["name"]) for e in events if e["ph"] == "X"]
    assert spans == [
        ("host", "Pack", "Pack data"),
        ("fpga", "conv", "a"),
        ("host", "Unpack", "Unpack a"),
        ("custom", "twice", "one"),
        ("custom", "twice", "two"),
        ("host", "Pack", "Pack q"),
        ("fpga", "conv", "d"),
        ("host", "Unpack", "Unpack d"),
    ]
