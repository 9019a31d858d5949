"""The generator makes the accelerator of every manifest that is shipped."""

from __future__ import annotations

import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")

from chai import overlay as overlays
from chai.devices.rtlsim import program
from chai.hw_overlays.rtl.array.engine import ArrayEngine
from chai.hw_overlays.rtl.window.engine import WindowEngine

NAMES = overlays.names("array")


@pytest.mark.parametrize("name", NAMES)
def test_each_part_of_the_engines_accepts_each_manifest(name: str) -> None:
    """Without what the parts consist of, which takes seconds."""
    overlay = overlays.load(name)
    for engine in (ArrayEngine(overlay), WindowEngine(overlay)):
        engine.elaborate(None)
    assert len(ArrayEngine(overlay).elaborate(None)._named_submodules) >= 10 + overlay.array.lanes


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_manifest_becomes_rtlil(name: str) -> None:
    overlay = overlays.load(name)
    text = program.generated(overlay)
    for lane in range(overlay.array.lanes):
        assert f"\\top.array.accumulators_{lane}" in text
