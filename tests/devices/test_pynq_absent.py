"""The device pynq where there is no pynq."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import devices, overlay as overlays
from chai.devices.pynq import finding
from chai.errors import DeviceError


def test_chai_imports_pynq_for_a_board_only() -> None:
    code = "import sys, chai; from chai import devices; devices.open('pynq').status(); chai.Net('digits')\n"
    code += "print([m for m in sys.modules if m.split('.')[0] == 'pynq'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.skipif(find_spec("pynq") is not None, reason="pynq is installed")
def test_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.open("pynq").status() == (False, "the pynq library is not installed")
    done = subprocess.run([sys.executable, "-m", "chai", "devices"], capture_output=True, text=True, check=True)
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "pynq no the pynq library is not installed an overlay on a Zynq board, through pynq" in lines
    image = np.zeros((1, 1, 8, 8), np.float32) + 1
    with pytest.raises(DeviceError, match="no bitstream of overlay pynq-z2 is published yet") as caught:
        chai.Net("digits", device="pynq", calibrate=image).forward(image)
    assert "put pynq-z2.bit and pynq-z2.hwh beside" in str(caught.value.hint)
    (tmp_path / "overlay.json").write_bytes(overlays.load().path.read_bytes())
    (tmp_path / "pynq-z2.bit").write_bytes(b"x")
    monkeypatch.setattr(finding, "LOCKS", tmp_path)
    with pytest.raises(DeviceError, match="the pynq library is not installed"):
        chai.Net("digits", device="pynq", overlay=tmp_path, calibrate=image).forward(image)
