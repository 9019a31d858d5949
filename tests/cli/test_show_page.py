"""chai show on terminals, in pipes and as a page: digits, GoogLeNet and MobileNet-SSD."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import chai
from chai.artifact.save import save
from chai.cli import output
from chai.util import html
from tests.cli.conftest import InProcess
from tests.cli.test_names import COLOUR, printed
from tests.cli.test_show import FORMATS, write_net

NETWORKS = ["digits", "googlenet", pytest.param("mobilenet_ssd", marks=pytest.mark.slow)]  # its plan takes seconds
_contents: dict[tuple[str, ...], str] = {}  # what is printed does not depend on the test


def content_of(in_process: InProcess, capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    if args not in _contents:
        assert in_process(*["show", *args, "--json", "-q"]) == 0
        _contents[args] = capsys.readouterr().out
    content: dict[str, Any] = json.loads(_contents[args])
    return content


# -- terminals and pipes


@pytest.mark.parametrize(
    ("name", "overlay", "columns"),
    [
        *(("digits", overlay, columns) for overlay in (False, True) for columns in (80, 120)),
        *(("googlenet", False, 80), ("googlenet", False, 120), ("googlenet", True, 80), ("mobilenet_ssd", False, 80)),
        *(
            pytest.param(name, True, columns, marks=pytest.mark.slow)
            for name, columns in (("googlenet", 120), ("mobilenet_ssd", 80), ("mobilenet_ssd", 120))
        ),
    ],
)
def test_no_name_is_torn_on_a_terminal(
    in_process: InProcess,
    name: str,
    overlay: bool,
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = [name, *(["--overlay", "pynq-z2"] if overlay else [])]
    content = content_of(in_process, capsys, *args)
    code, text = printed(["show", *args, "-q"], True, monkeypatch, columns)
    assert code == 0
    lines = [line.rstrip() for line in COLOUR.sub("", text).splitlines()]
    assert max(len(line) for line in lines if "/custom/" not in line) <= columns  # a path is as long as it is
    rows = [line.split() for line in lines[1 : len(content["layers"]) + 1]]
    assert [(row[0], row[1]) for row in rows] == [(x["name"], x["type"]) for x in content["layers"]]
    words = set(" ".join(lines).replace(",", " ").replace(":", " ").split())
    assert {layer["name"] for layer in content["layers"]} <= words
    if overlay:
        left_out = [line for line in lines if line.startswith("left out on")]
        assert left_out == ([] if columns == 120 and name != "mobilenet_ssd" else left_out[:1])
        assert ("format" in lines[0].split()) == (not left_out)
        assert {w for pair in content["conversions"] for w in pair.split()} <= words
        assert {w for layer in content["layers"] for w in (layer["reason"] or "").replace(",", " ").split()} <= words
    else:
        assert not any(line.startswith("left out on") for line in lines)


def test_a_narrow_terminal_gets_a_name_on_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = printed(["show", "digits", "--overlay", "pynq-z2", "-q"], True, monkeypatch, 30)
    lines = text.splitlines()
    assert any(line.startswith("left out on 30 columns: format, cycles, MACs, out shape, type") for line in lines)
    assert lines[lines.index("inception_a/relu_3x3_reduce") + 1] == "  engine fpga"


def test_a_narrow_terminal_gets_the_name_of_each_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setattr(output, "terminal_width", lambda: 20)
    rows = [["opencv", "0.09", "0.37 x", "1"], ["chai", "0.24", "", "2"]]
    output.table(["", "min", "min / chai's", "more"], rows, "lrrr", ["more"])
    assert capsys.readouterr().out.splitlines() == [
        *("opencv", "  min 0.09,", "  min / chai's 0.37 x"),
        *("chai", "  min 0.24"),
        "left out on 20 columns: more (a pipe and --json have all)",
    ]


def test_engines_have_one_colour_on_terminals_and_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = printed(["show", "digits", "--overlay", "pynq-z2", "-q"], True, monkeypatch, 120)
    painted = {word: colour for colour, word in re.findall(r"\x1b\[38;2;([\d;]+)m(\w+)", text)}
    rgb = {engine: ";".join(map(str, bytes.fromhex(html.COLOURS[engine][1:]))) for engine in ("fpga", "custom")}
    assert painted == rgb and " host" in text


def test_several_tops_are_listed_below_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tops = [f"part{i}" for i in range(9)]
    path = tmp_path / "slice.prototxt"
    path.write_text(f"""
        layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ dim: 1 dim: 9 dim: 115 dim: 117 }} }} }}
        layer {{ name: "parts" type: "Slice" bottom: "data" {" ".join(f'top: "{t}"' for t in tops)} }}
        """)
    _, text = printed(["show", str(path), "-q"], True, monkeypatch, 60)
    text = COLOUR.sub("", text)
    assert "1x1x115x117 +8" in text and max(map(len, text.splitlines())) <= 60
    assert text.split("shapes ")[1].split("outputs")[0].count("1x1x115x117") == 9
    _, text = printed(["show", str(path), "-q"], False, monkeypatch)
    (row,) = (line for line in text.splitlines() if line.startswith("parts "))
    assert row.count("1x1x115x117") == 9


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_is_one_complete_line_in_a_pipe(
    in_process: InProcess, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = content_of(in_process, capsys, name, "--overlay", "pynq-z2")
    _, text = printed(["show", name, "--overlay", "pynq-z2", "-q"], False, monkeypatch, 40)
    lines = text.splitlines()
    assert text.isascii()
    assert lines[0].split() == ["layer", "type", "out", "shape", "MACs", "cycles", "engine", "format", "reason"]
    for line, layer in zip(lines[1:], content["layers"]):
        shape = " ".join("x".join(map(str, s)) for s in layer["shapes"])
        for word in (layer["name"], layer["type"], shape, layer["engine"], layer["format"], layer["reason"] or ""):
            assert word in line, (word, line)


# -- the page


class Page(HTMLParser):
    """Boxes of the picture as (engine, lines of text, title), rows of the table, entries of the legend, addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.legend: list[str] = []
        self.rows: list[list[str]] = []
        self.addresses: list[str] = []
        self.data = ""
        self._open = ""
        self.feed(text)
        (drawing,) = re.findall(r"<svg .*</svg>", text)
        root = ElementTree.fromstring(drawing)
        self.edges = sum(path.get("class") == "edge" for path in root.iter("path"))
        self.boxes = {}
        for group in root.iter("g"):
            lines = [t.text or "" for t in group.iter("text")]
            title = group.findtext("title") or ""
            engine = [r.get("class") for r in group.iter("rect")][1]
            self.boxes[title.split(" - ")[0]] = (engine, " ".join(lines), title)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.addresses += [
            f"{name}={value}" for name, value in attrs if name in ("src", "href", "xlink:href", "action")
        ]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "li":
            self.legend.append("")

    def handle_data(self, data: str) -> None:
        if self._open in ("td", "th") and self.rows:
            self.rows[-1][-1] += data.rstrip("\n")
        elif self._open == "i":
            self.legend[-1] += data
        elif self._open == "script":
            self.data += data


def page_of(in_process: InProcess, tmp_path: Path, *args: str) -> tuple[Page, str]:
    file = tmp_path / "out.html"
    assert in_process(*["show", *args, "--html", str(file), "-q"]) == 0
    text = file.read_text()
    return Page(text), text


@pytest.mark.parametrize("kind", ["plain", "overlay", "compiled"])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_page_shows_every_layer_engine_conversion_and_reason(
    in_process: InProcess, name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = [name, *(["--overlay", "pynq-z2"] if kind == "overlay" else [])]
    if kind == "compiled":
        if name != "digits":
            pytest.skip("its weights are not shipped")
        with chai.Net("digits", device="null", calibrate=np.ones((1, 1, 8, 8), np.float32)) as net:
            save(net, tmp_path / "net.chai")
        args = [str(tmp_path / "net.chai")]
    content = content_of(in_process, capsys, *args)
    page, text = page_of(in_process, tmp_path, *args)
    assert json.loads(page.data) == content
    table = {row[0]: row for row in page.rows[1:]}
    assert [row[0] for row in page.rows[1:]] == [layer["name"] for layer in content["layers"]]
    for layer in content["layers"]:
        engine, words, title = page.boxes[layer["name"]]
        assert engine == (layer["engine"] if layer["engine"] in html.COLOURS else "none")
        assert f"{layer['engine']}" in words and layer["type"] in words
        assert (layer["reason"] or "") in words and (layer["reason"] or "") in title
        assert layer["engine"] in [cell.rstrip("?") for cell in table[layer["name"]]]
    conversions = content["conversions"] or []
    assert set(page.boxes) == {layer["name"] for layer in content["layers"]} | set(conversions)
    assert (kind == "plain") == (not conversions)
    assert all(page.boxes[c][0] == c.split()[0].lower() for c in conversions)
    engines = {layer["engine"] for layer in content["layers"]} | {c.split()[0].lower() for c in conversions}
    assert {entry.split(":")[0] for entry in page.legend} == engines
    assert page.addresses == [] and "url(" not in text and "@import" not in text
    assert not re.search(r"https?://", text.replace(content["file"], ""))
    assert "default-src 'none'" in text and text.count("<script") == 1


def test_a_box_of_a_conversion_is_between_writer_and_reader(tmp_path: Path) -> None:
    """Pack and Unpack are on the way from what writes a blob to what reads it, for each reader on the other side."""
    from chai.report.layer_rows import placed
    from chai.report.network_page import picture

    for name in ("digits", "googlenet", "mobilenet_ssd"):
        with chai.Net(name, device="null") as net:
            net.plan()
            rows = placed(net)
            boxes, edges = picture(net.graph, rows, net)
        below: dict[int, list[int]] = {}
        for first, second in edges:
            assert first < second
            below.setdefault(first, []).append(second)
        on_device = {"fpga": True, "host": False, "custom": False, "input": False, "pack": True, "unpack": False}
        for number, box in enumerate(boxes):
            if box.engine == "-":
                continue
            for other in below.get(number, []):
                reader = boxes[other]
                if reader.engine == "-":
                    continue
                expected = {"pack": False, "unpack": True}.get(reader.engine, on_device[reader.engine])
                assert on_device[box.engine] == expected, (box, reader)


def test_names_of_a_strange_file_are_shown_and_not_obeyed(in_process: InProcess, tmp_path: Path) -> None:
    path = write_net(tmp_path, FORMATS)
    evil = "</script><img src=http://x/ onerror=alert(1)>"
    path.write_text(path.read_text().replace('"deep"', f'"{evil}"'))
    page, text = page_of(in_process, tmp_path, str(path), "--overlay", "pynq-z2")
    assert evil in page.boxes and page.addresses == [] and evil not in text
    assert json.loads(page.data)["layers"][1]["name"] == evil
