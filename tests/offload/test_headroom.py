"""The margin of measured formats: what the page says is what the code does."""

from __future__ import annotations

import re

import pytest

from chai.offload.headroom import IMAGES, Basis
from tests.conftest import ROOT

PAGE = (ROOT / "docs/quantize.md").read_text()
ROW = re.compile(r"^\| (\d+)(?: to (\d+))?( or more)? \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", re.M)
COLUMNS = [(8, "Xilinx"), (8, "DynamicFixed"), (6, "Xilinx")]


def test_the_page_has_the_margins() -> None:
    rows = ROW.findall(PAGE)
    assert [row[:3] for row in rows] == [("1", "", ""), ("2", "7", ""), ("8", "31", ""), ("32", "", " or more")]
    for first, last, more, *margins in rows:
        for (bits, scheme), margin in zip(COLUMNS, margins, strict=True):
            for images in (int(first), int(last or first), int(first) * (99 if more else 1)):
                assert Basis(images, bits, scheme).margin == float(margin), (images, bits, scheme)


@pytest.mark.parametrize("scheme", ["Xilinx", "DynamicFixed"])
@pytest.mark.parametrize("bits", [8, 6])
def test_more_images_never_have_a_larger_margin(bits: int, scheme: str) -> None:
    margins = [Basis(images, bits, scheme).margin for images in range(70)]
    assert margins == sorted(margins, reverse=True)
    assert margins[0] == margins[1] > 1 == margins[-1]


def test_the_words() -> None:
    assert f"from {IMAGES} images" in PAGE
    one, eight, many = (Basis(images, 8, "Xilinx") for images in (1, 8, 40))
    assert str(one) == "8-bit Xilinx formats from the largest values of 1 image times 2"
    assert str(eight) == "8-bit Xilinx formats from the largest values of 8 images times 1.25"
    assert str(many) == "8-bit Xilinx formats from the largest values of 40 images"
    assert one.advice == "8 or more are better: net.calibrate(images), --calibration FOLDER or chai quantize"
    assert eight.advice == many.advice == ""
    assert one.widened({"a": 3.0}) == {"a": 6.0}
