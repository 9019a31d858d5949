"""What a notebook shows of a Net, its Schedule and its PerfInfo: right, escaped, and of bounded size."""

from __future__ import annotations

import re
from collections import Counter
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import chai
from chai.offload.schedule import DeviceStep
from chai.report.layer_rows import placed
from chai.runtime.perf import PerfInfo, StepTime
from chai.runtime.perf.picture import picture as timeline
from chai.util import html
from chai.util.table import Table
from tests.passes.common import CONV, network

HOSTILE = "<script>alert(1)</script>\"'&\u202e"
SHOWN = HOSTILE.replace("\u202e", r"\u202e")
SAFE = {"div", "style", "p", "table", "thead", "tbody", "tr", "th", "td", "svg", "path", "text", "rect", "title"}
X = np.random.default_rng(0).random((2, 3, 5, 7), np.float32)


class Page(HTMLParser):
    """Tags, attributes and the rows of tables of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.rstrip("\n")

    @property
    def safe(self) -> bool:
        return set(self.tags) <= SAFE and not any(name.startswith("on") or name == "href" for name in self.attributes)


def digits(device: str = "emulator") -> chai.Net:
    return chai.Net("digits", device=device)


# -- Net


def test_a_net_shows_where_each_layer_runs() -> None:
    net = digits()
    before = Page(net._repr_html_())
    assert before.rows[0] == ["layer", "type", "out shape", "engine", "format"]
    assert [row[0] for row in before.rows[1:]] == [layer.name for layer in net.graph.layers]
    shown = {row[0]: row[1:] for row in before.rows}
    assert shown["conv1/3x3"] == ["Convolution", "1x16x8x8", "fpga", "at first batch"]
    assert shown["classifier"] == ["gemm", "1x10", "custom", "float32"]
    assert shown["prob"] == ["Softmax", "1x10", "host", "float32"]
    assert net.formats is None and not net.perf.steps, "looking at a network changes it"
    net.forward(np.random.default_rng(1).random((3, 1, 8, 8)))
    assert net.formats is not None
    after = {row[0]: row[1:] for row in Page(net._repr_html_()).rows}
    blob = net.offload.graph.layer("conv1/3x3").tops[0]
    assert after["conv1/3x3"] == ["Convolution", "3x16x8x8", "fpga", str(net.formats[blob])]
    assert after["data"] == ["Input", "3x1x8x8", "input", str(net.formats["data"])]


def test_a_float_net_has_no_overlay() -> None:
    page = Page(digits("float")._repr_html_())
    assert {row[3] for row in page.rows[1:]} == {"input", "host", "custom"}
    assert {row[4] for row in page.rows[1:]} == {"float32"}


def test_a_net_of_unknown_size_and_a_closed_one(tmp_path: Path) -> None:
    (tmp_path / "n.prototxt").write_text(
        f'input: "data" layer {{ name: "c" type: "Convolution" bottom: "data" top: "c" {CONV} }}'
    )
    net = chai.Net(tmp_path / "n.prototxt")
    assert Page(net._repr_html_()).rows[1:] == [
        ["input", "Input", "?", "input", "-"],
        ["c", "Convolution", "?", "-", "-"],
    ]
    net.close()
    assert "closed" in Page(net._repr_html_()).text


def test_a_compiled_net_shows_the_formats_it_was_compiled_with(tmp_path: Path) -> None:
    from chai.artifact.save import save

    net = digits()
    net.calibrate(np.random.default_rng(1).random((1, 1, 8, 8)))
    save(net, tmp_path / "d.chai")
    wanted = {p.name: p for p in placed(net)}
    for row in placed(chai.Net(tmp_path / "d.chai")):
        assert (row.engine, row.format, row.shapes) == (
            wanted[row.name].engine,
            wanted[row.name].format,
            wanted[row.name].shapes,
        )
        assert row.reason == wanted[row.name].reason
    assert sum(p.macs for p in placed(chai.Net(tmp_path / "d.chai")) if p.engine == "fpga") == sum(
        p.macs for p in wanted.values() if p.engine == "fpga"
    )


def test_formats_to_plan_with_are_not_taken_for_real_ones(tmp_path: Path) -> None:
    """``plan`` is for looking at a schedule: a pass after it measures, and nothing is compiled with them."""
    from chai.artifact.save import save

    net, other = digits(), digits()
    x = 40 * np.random.default_rng(1).random((2, 1, 8, 8))
    net.plan()
    assert not net.calibrated and {p.format for p in placed(net) if p.engine == "fpga"} == {"at first batch"}
    with pytest.raises(chai.UsageError, match="its formats are not known"):
        save(net, tmp_path / "d.chai")
    assert np.array_equal(net.forward(x)["prob"], other.forward(x)["prob"])
    assert net.calibrated and net.formats == other.formats


# -- Schedule


def test_a_schedule_shows_its_steps() -> None:
    net = digits()
    assert "no steps yet" in Page(net.schedule._repr_html_()).text
    net.calibrate(np.random.default_rng(1).random((1, 1, 8, 8)))
    page = Page(net.schedule._repr_html_())
    assert len(page.rows) == 1 + len(net.schedule.steps)
    (segment,) = (row for row in page.rows if row[1] == "fpga")
    (step,) = (s for s in net.schedule.steps if isinstance(s, DeviceStep))
    assert segment[2] == f"{step.layers[0].name} .. {step.layers[-1].name} ({len(step.layers)} layers)"
    assert segment[3:6] == [str(len(step.tasks)), ", ".join(step.inputs), ", ".join(step.outputs)]
    assert page.rows[-1][1:3] + page.rows[-1][-1:] == ["host", "prob", "no Softmax unit"]


# -- PerfInfo


def test_times_are_shown_with_their_shares() -> None:
    steps = (
        StepTime("Pack data", "Pack", "host", 1.0, 0, 4, begin=0.0),
        StepTime("a", "conv", "fpga", 6.0, 9, 4, begin=1.0),
        StepTime("b", "gemm", "custom", 3.0, 0, 4, begin=7.0),
    )
    text = PerfInfo(steps, 10.0, 2)._repr_html_()
    page = Page(text)
    assert "200.00 images/second" in page.text
    assert ["a", "conv", "fpga", "6.000", "60.0", "0.0 G", ""] in page.rows
    assert ["custom", "1", "3.000", "30.0", ""] in page.rows
    widths = re.findall(r"width:([\d.]+)%;background:(#\w+)", text)
    assert widths[-3:] == [
        ("10.0", html.COLOURS["host"]),
        ("60.0", html.COLOURS["fpga"]),
        ("30.0", html.COLOURS["custom"]),
    ]


def rectangles(picture: str) -> list[tuple[float, float, float, str]]:
    """x, y, width and words of each bar of a timeline."""
    matches = re.findall(r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)"[^>]*><title>([^<]*)', picture)
    return [(float(x), float(y), float(width), unescape(words)) for x, y, width, words in matches]


def test_a_timeline_is_to_scale_with_a_lane_for_each_engine() -> None:
    steps = (
        StepTime("a", "conv", "fpga", 6.0, 0, 4, begin=1.0),
        StepTime("b", "LRN", "host", 2.0, 0, 4, begin=2.0),
        StepTime("c", "conv", "fpga", 2.0, 0, 4, begin=8.0),
    )
    picture = timeline(steps)
    b, a, c = rectangles(picture)
    written = [e.text for e in ElementTree.fromstring(picture).iter("text")]
    assert written == ["1", "3.25", "5.5", "7.75", "10 ms", "host", "fpga"]
    unit = a[2] / 6
    assert [r[3] for r in (a, b, c)] == ["a (conv)  6.000 ms", "b (LRN)  2.000 ms", "c (conv)  2.000 ms"]
    assert b[2] == c[2] == pytest.approx(2 * unit, abs=0.02)
    assert b[0] - a[0] == pytest.approx(unit, abs=0.02) and c[0] - a[0] == pytest.approx(7 * unit, abs=0.02)
    assert a[1] == c[1] != b[1]


def test_steps_too_short_to_be_seen_are_drawn_together() -> None:
    steps = [StepTime(f"s{i}", "conv", "fpga", 0.001, 0, 0, begin=i * 0.001) for i in range(10_000)]
    bars = rectangles(timeline(steps))
    assert 300 < len(bars) <= 350
    assert sum(int(words.rpartition("(")[2].partition(")")[0]) for *_, words in bars) == 10_000
    assert all(x + width <= following + 0.02 for (x, _, width, _), (following, *_) in pairwise(bars))


def test_a_long_step_keeps_its_name_beside_short_ones() -> None:
    times = {"a": 0.001, "b": 0.001, "long": 9.0, "c": 0.001, "d": 0.001}
    begins = [0.0, 0.001, 0.002, 9.002, 9.003]
    steps = tuple(StepTime(n, "conv", "fpga", ms, 0, 0, begin=b) for (n, ms), b in zip(times.items(), begins))
    words = [r[3].split("  ")[0] for r in rectangles(timeline(steps))]
    assert words == ["a .. b (2)", "long (conv)", "c .. d (2)"]


def test_nothing_was_run_yet() -> None:
    assert "no forward pass" in PerfInfo()._repr_html_()


# -- all of them


def test_a_thousand_layers_are_a_short_page(tmp_path: Path) -> None:
    layers = "\n".join(f"l{i} PReLU {'data' if not i else f'l{i - 1}'} -> l{i}" for i in range(1000))
    net = network(tmp_path, layers, device="emulator")
    net.forward(X)
    for shown in (net, net.schedule, net.perf):
        text = shown._repr_html_()
        assert len(text) < 150_000
        assert len(Page(text).rows) < 220
    page = Page(net._repr_html_())
    assert [page.rows[2][0], page.rows[-1][0]] == ["l0", "l999"]
    assert [row[0] for row in page.rows if "more" in row[0]] == ["... 801 more ..."]
    steps = tuple(StepTime(f"s{i}", "conv", "fpga", i * 0.01 + 0.1, 0, 0, begin=i * 6.0) for i in range(1000))
    names = [row[0] for row in Page(PerfInfo(steps, 6000.0)._repr_html_()).rows]
    assert names[-200:] == [f"s{i}" for i in range(800, 1000)], "the longest, in order"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = HOSTILE.replace('"', '\\"')
    (tmp_path / "n.prototxt").write_text(
        f'''name: "{name}" input: "data" input_dim: 2 input_dim: 3 input_dim: 5 input_dim: 7
        layer {{ name: "{name}" type: "Convolution" bottom: "data" top: "{name}" {CONV} }}
        layer {{ name: "{name}2" type: "Softmax" bottom: "{name}" top: "{name}2" }}''',
        "utf-8",
    )
    net = chai.Net(tmp_path / "n.prototxt")
    net.forward(X)
    for shown in (net, net.schedule, net.perf):
        text = shown._repr_html_()
        page = Page(text)
        assert page.safe, page.tags
        assert "<script" not in text and "\u202e" not in text
        assert any(SHOWN in cell for row in page.rows for cell in row)


def test_a_table_is_cut_in_the_middle_only_when_it_is_too_long() -> None:
    table = Table(("a", "b"), [(str(i), "x") for i in range(7)], "lr")
    bars = [("fpga", 10.0 * i) for i in range(7)]
    assert html.rows(table, bars, 7) == f'<div class="rows">{html.markup(table, bars)}</div>'
    cut = html.rows(table, bars, 4)
    assert [row[0] for row in Page(cut).rows[1:]] == ["0", "1", "... 3 more ...", "5", "6"]
    assert re.findall(r"width:([\d.]+)%", cut) == ["0.0", "10.0", "0.0", "50.0", "60.0"]


# -- what notebooks ask besides


def test_pictures_become_a_batch_as_the_card_says(tmp_path: Path) -> None:
    from PIL import Image

    net = digits("float")
    pixels = np.arange(7 * 5, dtype=np.uint8).reshape(7, 5) * 7
    Image.fromarray(pixels).save(tmp_path / "p.png")
    batch = net.preprocess([tmp_path / "p.png", Image.open(tmp_path / "p.png"), str(tmp_path / "p.png")])
    assert batch.shape == (3, 1, 8, 8) and batch.dtype == np.float32
    wanted = net.card.preprocess(Image.open(tmp_path / "p.png"), (1, 1, 8, 8))
    assert 0 < wanted.max() <= 1 and all(np.array_equal(item, wanted) for item in batch)
    assert net.card.labels == tuple("0123456789")


def test_pictures_become_a_batch_as_a_training_net_says(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "n.prototxt").write_text(
        """layer { name: "d" type: "ImageData" top: "data" top: "label" transform_param { scale: 0.5 mean_value: 10 }
             image_data_param { source: "x" batch_size: 2 new_height: 3 new_width: 5 } }
           layer { name: "s" type: "Softmax" bottom: "data" top: "s" }"""
    )
    net = chai.Net(tmp_path / "n.prototxt", device="float", shapes={"data": (2, 3, 3, 5)})
    batch = net.preprocess([Image.new("RGB", (5, 3), (30, 20, 10))])
    assert batch.shape == (1, 3, 3, 5)
    assert [float(c.mean()) for c in batch[0]] == [0.0, 5.0, 10.0], "blue first"


def test_pictures_for_several_inputs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "n.prototxt").write_text(
        """input: "a" input_dim: 1 input_dim: 3 input_dim: 5 input_dim: 7
           input: "b" input_dim: 1 input_dim: 3 input_dim: 5 input_dim: 7
           layer { name: "s" type: "Eltwise" bottom: "a" bottom: "b" top: "s" }"""
    )
    with pytest.raises(chai.UsageError, match="inputs a, b of known size"):
        chai.Net(tmp_path / "n.prototxt").preprocess([])
    with pytest.raises(chai.UsageError, match="there is no picture"):
        digits("float").preprocess([])


def test_a_check_shows_each_layer_and_the_agreement() -> None:
    from chai.evaluate.compare import check

    report = check("digits", None, [np.random.default_rng(1).random((4, 1, 8, 8))], bound_db=200)
    page = Page(report._repr_html_())
    assert page.safe
    assert [row[0] for row in page.rows[1:]] == [layer.name for layer in report.measured]
    shown = {row[0]: row for row in page.rows}
    (conv,) = (layer for layer in report.layers if layer.name == "inception_a/3x3")
    assert shown.get(conv.inside or conv.name, ["", "", "", ""])[3:5] == [conv.decibels, "below the bound"]
    assert f"prob: top-1 agreement {report.agreements[0].top1}/4" in page.text
