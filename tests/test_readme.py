"""What the README says is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import chai
from chai import plugins
from chai.cli import COMMANDS
from chai.env import Env
from chai.zoo import networks

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    command = (ROOT / ".ci" / "run").read_text().strip().splitlines()[-1]
    assert "nox -t ci" in command
    assert f"\n{command}\n" in README


def test_commands_networks_and_variables_are_all_there() -> None:
    assert all(f"chai {c}" in README for c in COMMANDS)
    assert all(f"`{n}`" in README for n in networks.names())
    assert all(f"`CHAI_{name.upper()}`" in README for name in Env.__dataclass_fields__)


def test_the_layer_of_the_readme_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n# my_layers\.py\n(.*?)```", README, re.DOTALL)
    (tmp_path / "my_layers.py").write_text(code)
    plugins.load_shipped()  # the shipped layers go to the registry that stays
    monkeypatch.setattr(plugins.registry, "REGISTRY", plugins.Registry())
    x = np.random.default_rng(0).random((3, 1, 8, 8))
    plugins.load_custom(tmp_path / "my_layers.py")
    found = chai.Net("digits", custom={"gemm": plugins.registry.REGISTRY.find("gemm").function}).forward(x)["prob"]
    monkeypatch.undo()
    assert np.allclose(found, chai.Net("digits").forward(x)["prob"], atol=1e-6)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
