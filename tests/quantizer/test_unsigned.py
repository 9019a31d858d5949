"""Unsigned codes in quantised files: where they are written, how they are read back, and what they are worth."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.fixed import Format
from chai.quantizer import PLAIN, Recipe, quantize
from chai.util.paths import resource
from tests.passes.common import AVE, CONV, DEEP, MAX, network
from tests.quantizer.test_writeback import SHAPE, batches, save

NET = f"""
    a Convolution data -> a : {DEEP}
    ra ReLU a -> a
    pa Pooling a -> pa : {MAX}
    b Convolution pa -> b : {DEEP}
    rb ReLU b -> b
    c Convolution pa -> c : {DEEP}
    cat Concat b c -> cat
    d Convolution b -> d : {DEEP}
    rd ReLU d -> d
    v Pooling d -> v : {AVE}
    e Convolution v -> e : {CONV}
    """
FULL = Recipe("mse", "mse", 0.0, "compensated", "tuned")


def quantised(folder: Path, recipe: Recipe = PLAIN, **options: Any) -> tuple[Path, Any]:
    save(network(folder, NET, SHAPE), folder / "net.caffemodel")
    out = folder / f"q{len(list(folder.iterdir()))}.prototxt"
    return out, quantize(folder / "net.prototxt", folder / "net.caffemodel", batches(), out, recipe=recipe, **options)


def marked(path: Path) -> dict[str, tuple[bool, bool]]:
    """Whether each layer's input and output are marked, by the text alone."""
    marks = {}
    for block in path.read_text().split("layer {")[1:]:
        name = block.split('name: "')[1].split('"')[0]
        marks[name] = ("chai_unsigned_in: true" in block, "chai_unsigned_out: true" in block)
    return marks


def rounded(formats: Mapping[str, Format] | None) -> dict[str, Format]:
    """Thresholds as float32, which a decimal in a file restores."""
    return {blob: replace(f, value=float(np.float32(f.value))) for blob, f in (formats or {}).items()}


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("recipe", [PLAIN, FULL])
def test_the_file_says_which_blobs_are_unsigned(tmp_path: Path, scheme: str, recipe: Recipe) -> None:
    """Behind the ReLUs; not the input, and not b, as it shares a format with c, which can be negative."""
    out, result = quantised(tmp_path, recipe, scheme=scheme)
    assert {name: marks for name, marks in marked(out).items() if any(marks)} == {
        "a": (False, True),
        "pa": (True, True),
        "b": (True, False),
        "c": (True, False),
        "d": (False, True),
        "v": (True, True),
        "e": (True, False),
    }
    with chai.Net(out, result.caffemodel, "emulator") as net:
        net.forward(batches()[0])
        assert rounded(net.formats) == rounded(result.built.formats)
        assert {blob for blob, f in net.formats.items() if f.unsigned} == {"a@ra", "pa", "d@rd", "v"}


def test_a_file_for_chaidnn_has_no_word_of_them(tmp_path: Path) -> None:
    out, result = quantised(tmp_path, chaidnn=True)
    assert "unsigned" not in out.read_text()
    with chai.Net(out, result.caffemodel, "emulator") as net:
        net.forward(batches()[0])
        assert net.formats is not None and not any(f.unsigned for f in net.formats.values())


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
def test_an_overlay_without_them_reads_signed_formats_of_the_same_range(tmp_path: Path, scheme: str) -> None:
    out, result = quantised(tmp_path, scheme=scheme)
    manifest = json.loads(resource("hw_overlays", "pynq-z2", "overlay.json").read_text())
    del manifest["unsigned"]
    (tmp_path / "overlay.json").write_text(json.dumps(manifest))
    with chai.Net(out, result.caffemodel, "emulator", overlay=tmp_path / "overlay.json") as net:
        net.forward(batches()[0])
        assert rounded(net.formats) == rounded({blob: f.signed for blob, f in result.built.formats.items()})


def test_the_part_of_a_network_before_a_relu_is_read_as_signed(tmp_path: Path) -> None:
    out, result = quantised(tmp_path)
    with chai.Net(out, result.caffemodel, "emulator", end_layer="a") as net:
        net.forward(batches()[0])
        assert net.formats is not None
        assert rounded({"a": net.formats["a"]}) == rounded({"a": result.built.formats["a@ra"].signed})


@pytest.mark.parametrize("recipe", [PLAIN, FULL])
@pytest.mark.parametrize("bits", [8, 6])
def test_they_are_worth_it(tmp_path: Path, recipe: Recipe, bits: int) -> None:
    """Errors on images not used, in float's unit."""
    data = np.random.default_rng(99).standard_normal((4, *SHAPE[1:])).astype(np.float32)
    wanted = network(tmp_path, NET, SHAPE).forward(data)["e"]
    errors = []
    for chaidnn in (False, True):
        out, result = quantised(tmp_path, recipe, bits=bits, chaidnn=chaidnn)
        with chai.Net(out, result.caffemodel, "emulator") as net:
            errors.append(float(((net.forward(data)["e"] - wanted) ** 2).mean()))
    assert errors[0] < errors[1]
