"""The generator makes the accelerator of every manifest that is shipped."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("amaranth", reason="the extra rtl is not installed")

from chai import overlay as overlays
from chai.devices.rtlsim import program

NAMES = overlays.names("array")


PARTS = """
from chai import overlay as overlays
from chai.hw_overlays.rtl.array.engine import ArrayEngine
from chai.hw_overlays.rtl.window.engine import WindowEngine
for name in overlays.names("array"):
    for engine in (ArrayEngine, WindowEngine):
        engine(overlays.load(name)).elaborate(None)
    print(name)
"""


def test_each_part_of_the_engines_accepts_each_manifest() -> None:
    """Without what the parts consist of, which takes seconds, and in a process that ends: Amaranth warns of unused parts."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PARTS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == list(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_each_manifest_becomes_rtlil(name: str) -> None:
    overlay = overlays.load(name)
    text = program.generated(overlay)
    for lane in range(overlay.array.lanes):
        assert f"\\top.array.accumulators_{lane}" in text
