"""The example of docs/pycaffe.md prints what is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chai.pycaffe as caffe

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "pycaffe.md").read_text()


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "prototxt").symlink_to(ROOT / "prototxt")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "pycaffe.md", "exec"), {})
    assert capsys.readouterr().out == printed


def test_every_name_is_there() -> None:
    functions = [n for n, v in vars(caffe.io).items() if getattr(v, "__module__", "") == caffe.io.__name__]
    names = {n for n in (*functions, *vars(caffe.Net), *vars(caffe.Net("digits", caffe.TEST))) if not n.startswith("_")}
    assert {"oversample", "Transformer", "forward_all", "params", "blobs"} <= names
    assert {n for n in names if n not in TEXT} == {"forward_backward_all"}


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)", TEXT):
        assert (ROOT / "docs" / link).exists(), link
