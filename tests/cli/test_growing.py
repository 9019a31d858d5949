"""JSON results go out as they come."""

from __future__ import annotations

import json
import sys
from io import StringIO
from typing import Any

import pytest

import chai
from chai.cli import main
from tests.conftest import ROOT

IMAGES = sorted((ROOT / "prototxt" / "digits_images").glob("*.png"))[:5]


def test_each_image_is_printed_before_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    out, printed = StringIO(), list[int]()
    forward = chai.Net.forward

    def watched(net: chai.Net, *data: Any, **inputs: Any) -> dict[str, Any]:
        printed.append(out.getvalue().count('"file"'))
        return forward(net, *data, **inputs)

    monkeypatch.setattr(chai.Net, "forward", watched)
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["run", "digits", "-i", *map(str, IMAGES), "--batch", "2", "--json", "--device", "float"]) == 0
    assert printed == [0, 2, 4]
    report = json.loads(out.getvalue())
    assert [image["file"] for image in report["images"]] == [*map(str, IMAGES)]
    assert (report["schema"], report["chai"]) == ("chai.run/3", chai.__version__)
    assert report["failed"] == []


def test_nothing_is_printed_before_the_first_image(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise chai.ModelError("no")

    monkeypatch.setattr(chai.Net, "forward", fail)
    assert main(["run", "digits", "-i", str(IMAGES[0]), "--json", "--device", "float"]) != 0
    assert capsys.readouterr().out == ""


def test_no_image_can_be_read(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.png").write_bytes(b"no picture")
    assert main(["run", "digits", "-i", str(tmp_path / "a.png"), "--json", "--device", "float"]) == 65
    report = json.loads(capsys.readouterr().out)
    assert report["images"] == []
    assert len(report["failed"]) == 1
