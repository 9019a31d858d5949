"""A PyTorch module becomes a Net."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import chai


@pytest.mark.extras
def test_a_module() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    nn = torch.nn
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(3, 2, ceil_mode=True),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    ).eval()  # fmt: skip
    x = torch.randn(3, 3, 32, 40)
    with chai.from_torch(module, x[:1], device="float") as net:
        (y,) = net.forward(x.numpy()).values()
    np.testing.assert_allclose(y, module(x).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(chai.UsageError, match=r"from_torch needs PyTorch \(hint: pip install torch\)"):
        chai.from_torch(None, None)


def test_torch_is_imported_there_alone() -> None:
    code = "import chai, sys; f = chai.from_torch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
