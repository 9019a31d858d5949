"""The package as it is installed: pure Python, data inside, complete without the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

from chai.util.paths import resource
from tests.conftest import ROOT


def test_the_wheel_holds_the_data_and_no_other_package(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {"chai"}
    for folder in ("prototxt", "custom", "hw_overlays"):
        shipped = {
            f"chai/_data/{folder}/{p.relative_to(resource(folder))}" for p in resource(folder).rglob("*") if p.is_file()
        }
        assert {n for n in shipped if "__pycache__" not in n} <= set(names)
    notebooks = {f"chai/notebooks/{p.name}" for p in (ROOT / "chai" / "notebooks").glob("*.ipynb")}
    assert notebooks
    assert len(notebooks) == 4
    assert {"chai/py.typed", "chai/_data/proto/caffe.desc", *notebooks} <= set(names)
    assert not [n for n in names if n.endswith((".pyc", ".part"))]


def test_the_wheel_runs_without_the_checkout(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = "import chai; print(chai.__file__); from chai.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "demo"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "site" / "chai"))
    assert (tmp_path / "chai-demo.png").exists()
