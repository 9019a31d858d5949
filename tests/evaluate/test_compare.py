"""Float against fixed point: the numbers, who is listed, who is named first; and the page made of it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from math import inf, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from PIL import Image

import chai
from chai.errors import UsageError
from chai.evaluate import compare as checks
from chai.evaluate.compare import LayerCheck, Report, check, compare
from chai.fixed import Format
from chai.images.files import find, read
from chai.report import page as reports
from chai.runtime import measuring
from chai.util.paths import resource
from chai.util.table import Table
from chai.zoo.card_file import read_card
from tests.passes.common import AFFINE, CONV, GLOBAL, MAX, network

if TYPE_CHECKING:
    from chai.blob import Array

PLAIN = f"""
    conv1 Convolution data -> conv1 : {CONV}
    relu1 ReLU conv1 -> conv1
    pool1 Pooling conv1 -> pool1 : {MAX}
    conv2 Convolution pool1 -> conv2 : {CONV}
    relu2 ReLU conv2 -> conv2
    conv3 Convolution conv2 -> conv3 : {CONV}
    ip InnerProduct conv3 -> ip : inner_product_param {{ num_output: 7 }}
    prob Softmax ip -> prob
"""
SHAPE = (5, 3, 9, 11)
X = np.random.default_rng(3).uniform(-2, 2, (11, 3, 9, 11)).astype(np.float32)
NUMBER = {"type": ["number", "null"]}
LAYER = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "name", "type", "engine", "inside", "format", "sqnr_db", "exact", "max_error", "saturated_percent", "seen",
        "channel", "not_finite",
    ],
    "properties": {
        "name": {"type": "string"},
        "type": {"type": "string"},
        "engine": {"enum": ["input", "fpga", "host", "custom"]},
        "inside": {"type": ["string", "null"]},
        "format": {"type": ["string", "null"]},
        "sqnr_db": NUMBER,
        "exact": {"type": "boolean"},
        "max_error": NUMBER,
        "saturated_percent": NUMBER,
        "seen": NUMBER,
        "channel": {"type": ["integer", "null"]},
        "not_finite": {"type": "integer", "minimum": 0},
    },
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "required": [
        "network",
        "overlay",
        "formats",
        "calibrated",
        "images",
        "bound_db",
        "first_bad",
        "agreement",
        "layers",
    ],
    "properties": {
        "network": {"type": "string"},
        "images": {"type": "integer", "minimum": 1},
        "bound_db": {"type": "number"},
        "first_bad": {"type": ["string", "null"]},
        "layers": {"type": "array", "minItems": 1, "items": LAYER},
        "agreement": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["blob", "images", "top1", "top5", "share"],
                "properties": {"top1": {"type": "integer"}, "share": {"type": "number", "minimum": 0, "maximum": 1}},
            },
        },
    },
}


def pair(folder: Path, lines: str, shape: tuple[int, ...] = SHAPE, **options: Any) -> tuple[chai.Net, chai.Net]:
    """The network in float, and on the emulator."""
    reference = network(folder, lines, shape, keep="all")
    return reference, network(folder, lines, shape, device="emulator", **options)


def row(report: Report, name: str) -> LayerCheck:
    (layer_check,) = (layer for layer in report.layers if layer.name == name)
    return layer_check


def digits(count: int) -> Array:
    card = read_card(resource("prototxt", "digits.prototxt"))
    files = find([resource("prototxt", "digits_images")])[:count]
    return np.stack([card.preprocess(read(f), (1, 1, 8, 8)) for f in files])


# -- the numbers


def naive(expected: Array, values: Array, low: float, high: float) -> tuple[float, float, float]:
    """SQNR in dB, largest error and percent saturated, one value at a time."""
    signal = error = worst = 0.0
    saturated = 0
    for a, b in zip(expected.flatten().tolist(), values.flatten().tolist()):
        signal += a * a
        error += (a - b) * (a - b)
        worst = max(worst, abs(a - b))
        saturated += (a > high and b >= high) or (a < low and b <= low)
    return 10 * log10(signal / error), worst, 100 * saturated / expected.size


def test_numbers_are_those_of_plain_loops(tmp_path: Path) -> None:
    reference, fixed = pair(tmp_path, PLAIN)
    twin = network(tmp_path, PLAIN, SHAPE, device="emulator", keep="all")  # no pass of this network minds keep
    for net in (fixed, twin):
        net.calibrate(iter([X[:5] * 0.8] * 7))  # so that something saturates: so many images have no margin
    report = compare(reference, fixed, [X])
    twin.forward(X)
    reference.forward(X)
    assert twin.formats is not None
    for name in ("conv1", "pool1", "conv2", "conv3"):
        blob = reference.graph.latest[name]
        format = twin.formats[blob]
        low, high = (float(format.dequantize(np.array(code))) for code in format.range)
        wanted = naive(reference.blobs[name], twin.blobs[name], low, high)
        got = row(report, name)
        assert (got.sqnr_db, got.max_error, got.saturated) == pytest.approx(wanted)
        assert got.format == format
        assert got.range_max == high
        assert got.seen == np.abs(reference.blobs[name]).max()
        assert np.abs(reference.blobs[name][:, got.channel]).max() == got.seen
    assert (row(report, "conv1").saturated or 0) > 0
    data = row(report, "data")
    format = twin.formats["data"]
    wanted = naive(X, format.dequantize(format.quantize(X)), -format.value, format.value)
    assert (data.sqnr_db, data.max_error, data.saturated) == pytest.approx(wanted)
    for name in ("ip", "prob"):
        got = row(report, name)
        wanted = naive(reference.blobs[name], twin.blobs[name], -inf, inf)
        assert (got.sqnr_db, got.max_error) == pytest.approx(wanted[:2])


def test_batches_give_what_one_batch_gives(tmp_path: Path) -> None:
    reports = []
    for batches in ([X], [X[:3], {"data": X[3:10]}, X[10:]]):
        reference, fixed = pair(tmp_path, PLAIN)
        fixed.calibrate(X)
        reports.append(compare(reference, fixed, iter(batches)))
    one, many = reports
    assert (one.images, one.agreements, one.calibrated) == (many.images, many.agreements, many.calibrated)
    assert one.images == 11
    for a, b in zip(one.layers, many.layers):
        for (key, x), y in zip(a.to_json().items(), b.to_json().values()):
            # a float kernel may sum in another order for another batch
            assert x == (pytest.approx(y, rel=1e-4) if isinstance(y, float) else y), (a.name, key)


def test_the_first_eight_images_calibrate(tmp_path: Path) -> None:
    reference, fixed = pair(tmp_path, PLAIN)
    report = compare(reference, fixed, [X[:4], X[4:8], 9 * X[8:]])
    assert (report.calibrated, report.images, report.formats) == (8, 11, "8-bit Xilinx")
    assert row(report, "data").range_max == pytest.approx(1.25 * float(np.abs(X[:8]).max()))
    assert (row(report, "data").saturated or 0) > 10


def test_agreement_counts_images(tmp_path: Path) -> None:
    reference, fixed = pair(tmp_path, PLAIN, bits=6, scheme="DynamicFixed")
    x = np.random.default_rng(1).uniform(-2, 2, (40, 3, 9, 11)).astype(np.float32)
    reference.forward(x)
    usual = reference.blobs["ip"].mean(0)  # without it one class wins always
    for net in (reference, fixed):
        net.params["ip"][1][...] -= usual
    report = compare(reference, fixed, [x[:15], x[15:]])
    expected = reference.forward(x)["prob"]
    scores = fixed.forward(x)["prob"]
    best = [max(range(7), key=lambda c: expected[i, c]) for i in range(40)]
    order = [sorted(range(7), key=lambda c: -scores[i, c]) for i in range(40)]
    (agreement,) = report.agreements
    assert agreement.blob == "prob"
    assert agreement.images == 40
    assert agreement.top1 == sum(o[0] == b for o, b in zip(order, best))
    assert agreement.top5 == sum(b in o[:5] for o, b in zip(order, best))
    assert 0 < agreement.top1 < 40
    assert report.agreement == agreement.share == agreement.top1 / 40


def test_coordinates_beside_probabilities_are_no_classes(tmp_path: Path) -> None:
    box = "box InnerProduct conv3 -> box : inner_product_param { num_output: 4 }"
    assert [a.blob for a in compare(*pair(tmp_path, PLAIN + box), [X]).agreements] == ["prob"]
    scores = PLAIN.replace("prob Softmax ip -> prob", box)
    assert {a.blob for a in compare(*pair(tmp_path, scores), [X]).agreements} == {"box", "ip"}


def test_top5_needs_more_than_five_classes(tmp_path: Path) -> None:
    reference, fixed = pair(tmp_path, "ip InnerProduct data -> ip : inner_product_param { num_output: 5 }")
    assert compare(reference, fixed, [X]).agreements[0].top5 is None
    reference, fixed = pair(tmp_path, f"conv1 Convolution data -> conv1 : {CONV}")
    report = compare(reference, fixed, [X])
    assert report.agreements == ()
    assert report.agreement is None


# -- who is listed


def test_every_layer_of_the_digits_is_listed_once() -> None:
    x = digits(24)
    report = check("digits", None, [x[:16], x[16:]])
    net = chai.Net("digits")
    assert [layer.name for layer in report.layers] == [layer.name for layer in net.graph.layers]
    engines = {"classifier": "custom", "prob": "host", "data": "input"}
    for layer in report.layers:
        assert layer.engine == engines.get(layer.name, "fpga")
        assert (layer.inside is None) == (layer.type not in ("ReLU", "Dropout"))
        assert (layer.sqnr_db is None) == (layer.inside is not None)
    assert row(report, "conv1/relu_3x3").inside == "conv1/3x3"
    assert row(report, "pool/drop_4x4").inside == "pool/4x4"
    assert report.first_bad is None
    assert report.agreement == 1.0
    assert report.overlay == "pynq-z2"
    jsonschema.validate(json.loads(json.dumps(report.to_json(), allow_nan=False)), SCHEMA)


def test_what_is_measured_is_the_network_that_runs(tmp_path: Path) -> None:
    lines = f"""
        conv Convolution data -> conv : {CONV}
        bn BatchNorm conv -> bn : {GLOBAL}
        scale Scale bn -> scale : {AFFINE}
        relu ReLU scale -> relu
        drop Dropout relu -> drop
        conv2 Convolution drop -> conv2 : {CONV}
    """
    reference, fixed = pair(tmp_path, lines)
    report = compare(reference, fixed, [X])
    assert [layer.inside for layer in report.layers] == [None, None, "conv", "conv", "conv", "conv", None]
    conv = row(report, "conv")
    assert conv.seen == reference.blobs["relu"].max()
    assert (conv.sqnr_db or 0) > 20


def test_a_dropout_on_the_input_is_in_the_input(tmp_path: Path) -> None:
    lines = f"drop Dropout data -> drop\nconv Convolution drop -> conv : {CONV}"
    report = compare(*pair(tmp_path, lines), [X])
    assert (row(report, "drop").inside, row(report, "drop").engine) == ("data", "input")


def test_a_host_layer_is_measured_as_the_overlay_gets_it(tmp_path: Path) -> None:
    reference, fixed = pair(tmp_path, PLAIN, engine={"conv1": "host", "conv3": "host"})
    report = compare(reference, fixed, [X])
    assert [row(report, f"conv{i}").engine for i in (1, 2, 3)] == ["host", "fpga", "host"]
    pool = row(report, "pool1")
    assert pool.engine == "fpga"
    first = row(report, "conv1")  # float until it is packed for pool1
    assert (row(report, "data").format, row(report, "data").sqnr_db) == (None, inf)
    assert first.format == row(report, "pool1").format
    assert first.sqnr_db is not None
    assert 20 < first.sqnr_db < inf
    assert row(report, "conv3").format is None
    assert row(report, "data").to_json()["exact"] is True


def test_an_input_may_be_called_as_a_layer_is(tmp_path: Path) -> None:
    dims = "input_param { shape { dim: 2 dim: 3 dim: 5 dim: 7 } }"
    lines = f"in Input -> conv : {dims}\nconv Convolution conv -> out : {CONV}"
    reference, fixed = pair(tmp_path, lines)
    report = compare(reference, fixed, [np.ones((2, 3, 5, 7), np.float32)])
    assert [(layer.name, layer.type, layer.seen) for layer in report.layers] == [
        ("conv", "Input", 1.0),
        ("conv", "Convolution", np.abs(reference.blobs["out"]).max()),
    ]


def test_a_part_of_a_network() -> None:
    report = check("digits", None, [digits(8)], end_layer="inception_a/output")
    assert report.layers[-1].name == "inception_a/output"
    with chai.Net("digits") as net:
        x = np.random.default_rng(0).random((4, *net.shapes["inception_a/output"][1:]), np.float32)
    report = check("digits", None, [x], start_layer="pool/2x2_s2")
    assert [(layer.name, layer.engine) for layer in report.layers[:2]] == [
        ("inception_a/output", "input"),
        ("pool/2x2_s2", "fpga"),
    ]


def test_two_inputs(tmp_path: Path) -> None:
    dims = "input_param { shape { dim: 2 dim: 16 dim: 5 dim: 7 } }"
    lines = f"""
        a Input -> a : {dims}
        b Input -> b : {dims}
        sum Eltwise a b -> sum
    """
    reference, fixed = pair(tmp_path, lines)
    x = np.random.default_rng(0).normal(size=(2, 2, 16, 5, 7)).astype(np.float32)
    report = compare(reference, fixed, [{"a": x[0], "b": x[1]}])
    assert [layer.name for layer in report.layers] == ["a", "b", "sum"]
    assert report.images == 2
    with pytest.raises(UsageError, match="input 'b' is missing"):
        compare(reference, fixed, [x[0]])


def test_no_input_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no input"):
        compare(*pair(tmp_path, PLAIN), [])


# -- planted faults


@pytest.mark.parametrize("layer", ["conv1", "conv2", "conv3", "ip"])
def test_wrong_weights_are_found_where_they_are(tmp_path: Path, layer: str) -> None:
    reference, fixed = pair(tmp_path, PLAIN)
    fixed.params[layer][0][...] *= -1
    report = compare(reference, fixed, [X])
    assert report.first_bad is row(report, layer)
    assert report.to_json()["first_bad"] == layer


@pytest.mark.parametrize("layer", ["data", "conv1", "conv2", "conv3"])
def test_a_wrong_format_is_found_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layer: str) -> None:
    calibrated = measuring.calibrated

    def narrow(*args: Any) -> dict[str, Format]:
        formats = calibrated(*args)
        blob = next(b for b in formats if b.partition("@")[0] == layer)
        return {**formats, blob: Format("Xilinx", 8, formats[blob].value / 20)}

    path = tmp_path / "net.prototxt"
    network(tmp_path, PLAIN, SHAPE)
    assert check(path, None, [X]).first_bad is None
    monkeypatch.setattr(measuring, "calibrated", narrow)
    report = check(path, None, [X[:5], X[5:]])
    bad = report.first_bad
    assert bad is not None
    assert bad.name == layer
    assert (bad.saturated or 0) > 10
    assert bad.seen is not None and bad.range_max is not None
    assert bad.seen > 10 * bad.range_max


def test_a_bound_that_nothing_reaches_names_the_input() -> None:
    report = check("digits", None, [digits(4)], bound_db=1000)
    assert report.first_bad is report.layers[0]


def test_values_that_are_not_finite_are_bad(tmp_path: Path) -> None:
    lines = f"conv Convolution data -> conv : {CONV}\npower Power data -> power : power_param {{ power: -0.5 }}"
    reference, fixed = pair(tmp_path, lines)
    x = np.abs(X) + 1
    assert compare(reference, fixed, [x]).first_bad is None
    x[10, 0, 0, :2] = [-1, 0]
    report = compare(reference, fixed, [x[:5], x[5:]])
    assert report.first_bad is row(report, "power")
    assert row(report, "power").not_finite == 1  # 0 becomes infinity in both; NaN equals nothing
    json.dumps(report.to_json(), allow_nan=False)


def test_silence_and_nothing_but_error() -> None:
    sums = checks._Sums()
    sums.add(np.zeros((2, 3)), np.zeros((2, 3)), None)
    assert sums.sqnr_db == inf
    sums.add(np.zeros((2, 3)), np.ones((2, 3)), None)
    assert sums.sqnr_db == -inf
    assert LayerCheck("a", "b", "fpga", sqnr_db=-inf).below(-100)


# -- the page

HOSTILE = "<img src=x onerror=alert(1)>"
BARS = [
    reports.Bar(HOSTILE, 12.5, "12.5", "fpga"),
    reports.Bar("</script><script>", -3.0, "-3.0", "host", True),
    reports.Bar("a\u202eb\x00\ud800", inf, "exact", '"onclick='),
    reports.Bar("x" * 1000, 99.0, "99", "custom"),
]
CHART = reports.Chart(HOSTILE, BARS, 40.0, 10.0)
DATA = {"names": [bar.name for bar in BARS], "<!--": "</script>"}


class Page(HTMLParser):
    """Tags, attributes and the embedded data of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.data = self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.open
        while self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.data += data
        else:
            self.text += data


def page() -> str:
    table = Table(["layer", "dB"], [[b.name, b.text] for b in BARS], "lr")
    return reports.document(HOSTILE, {HOSTILE: HOSTILE}, reports.body([HOSTILE], [HOSTILE], CHART, table), DATA)


def test_hostile_names_stay_text() -> None:
    document = Page(page())
    names = [tag for tag, _ in document.tags]
    assert "img" not in names
    assert names.count("script") == 1
    assert {a for _, attrs in document.tags for a in attrs if a.startswith("on")} == set()
    assert document.text.count(HOSTILE) == 9
    assert not set(page()) & {"\u202e", "\x00", "\ud800"}
    assert json.loads(document.data) == DATA
    assert page().isascii()


def test_the_page_needs_nothing_from_outside() -> None:
    document = Page(page())
    policy = next(a["content"] for tag, a in document.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    script = next(a for tag, a in document.tags if tag == "script")
    assert script == {"type": "application/json", "id": "data"}
    assert not {"src", "href", "action", "data"} & {a for _, attrs in document.tags for a in attrs}
    assert "prefers-color-scheme:dark" in page()


def test_the_bars_say_engine_and_length() -> None:
    rects = [a for tag, a in Page(page()).tags if tag == "rect"]
    assert [a["class"] for a in rects] == ["fpga", "host", "host", "custom"]
    assert [float(a["width"] or 0) for a in rects] == pytest.approx([12.5 / 40 * 300, 0, 300, 300], abs=0.1)
    assert "-3.0  host  below the bound" in page()
    assert ".host{fill:url(#hatch)}" in page()


def test_a_page_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    reports.save(path, page())
    assert path.read_text() == page()
    with pytest.raises(OSError):
        reports.save(tmp_path / "nowhere" / "a.html", page())
    (tmp_path / "b.html").mkdir()
    with pytest.raises(OSError):
        reports.save(tmp_path / "b.html", page())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.html"]


def test_the_picture_has_a_bar_of_each_colour(tmp_path: Path) -> None:
    reports.save_png(tmp_path / "a.png", CHART)
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "PNG"
        assert image.size == (760, 16 * (len(BARS) + 4))
        pixels = image.convert("RGB")
        assert pixels.getpixel((300, 16 * 2 + 8)) == (0x00, 0x72, 0xB2)
        assert pixels.getpixel((300, 16 * 5 + 8)) == (0xCC, 0x79, 0xA7)
        assert pixels.getpixel((589, 16 * 2 + 8))[0] > 200  # behind the end of a short bar
    many = reports.Chart("many", [BARS[0]] * 1200, 40.0, 10.0)
    reports.save_png(tmp_path / "b.png", many)
    with Image.open(tmp_path / "b.png") as image:
        assert image.height == 16 * 1004
