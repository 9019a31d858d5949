"""The package as it is installed: data inside, complete without the checkout, and named for the machines that it is for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import chai
from chai.kernels.native import build
from chai.util.paths import resource
from tests.conftest import HANG, ROOT
from tests.kernels.common import LIBRARY

INFO = f"chai_fpga-{chai.__version__}.dist-info"
NATIVE = Path("chai", "kernels", "native")
NO_COMPILER = {"CC": "/no/compiler"}
PURE = f"chai_fpga-{chai.__version__}-py3-none-any.whl"
OWN = f"chai_fpga-{chai.__version__}-py3-none-linux_{build.machine()}.whl"
ELF = {"x86_64": 62, "aarch64": 183, "armv7l": 40}  # e_machine of a library of each machine
ZIG = """import sys
target = sys.argv[sys.argv.index("-target") + 1]
open(sys.argv[sys.argv.index("-o") + 1], "w").write(target)
"""
Wheel = Callable[..., Path]
needs_library = pytest.mark.skipif(not LIBRARY.variants, reason=LIBRARY.reason)


def libraries(wheel: Path) -> dict[str, bytes]:
    """The compiled libraries in a wheel, by the machine in their names."""
    with zipfile.ZipFile(wheel) as archive:
        paths = [Path(name) for name in archive.namelist() if name.endswith(".so")]
        assert {path.parent for path in paths} <= {NATIVE}
        return {path.stem.removeprefix("chai-"): archive.read(str(path)) for path in paths}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout without libraries."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for path in ROOT.iterdir():
        if path.name in ("custom", "hw_overlays", "proto", "prototxt", "pyproject.toml", "README.md", "LICENSE"):
            (tree / path.name).symlink_to(path)
    shutil.copy(ROOT / "hatch_build.py", tree)
    shutil.copytree(ROOT / "chai", tree / "chai", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tree


@pytest.fixture
def built(tree: Path, tmp_path: Path) -> Wheel:
    """A function that builds the wheel of that checkout, as pip asks for it, with these variables."""
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install -e '.[dev]'")

    def wheel(**variables: str) -> Path:
        shutil.rmtree(tmp_path / "dist", ignore_errors=True)
        code = "import hatchling.build; hatchling.build.build_wheel('../dist')"
        env = {**os.environ, "PYTHONPATH": str(tmp_path / "modules"), **variables}
        subprocess.run([sys.executable, "-c", code], cwd=tree, env=env, check=True, capture_output=True, timeout=HANG)
        (path,) = (tmp_path / "dist").iterdir()
        return path

    return wheel


def compiler(folder: Path) -> Path:
    """A package ziglang that cannot be run, which Python prefers to an installed one since it has an __init__.py."""
    package = folder / "modules" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    return package


def installs(wheel: Path, platform: str, folder: Path) -> bool:
    """Return whether pip installs a wheel on this platform."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--no-index"]
    options = ["--only-binary=:all:", f"--platform={platform}", "--target", str(folder), str(wheel)]
    done = subprocess.run([*pip, *options], capture_output=True, text=True, check=False)
    assert not done.returncode or "is not a supported wheel on this platform" in done.stderr, done.stderr
    return not done.returncode


def test_the_wheel_holds_the_data_and_no_other_package(wheel: Path) -> None:
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


# -- for which machines


@needs_library
def test_a_wheel_with_the_library_of_one_machine_installs_only_there(wheel: Path, tmp_path: Path) -> None:
    assert wheel.name == OWN
    assert libraries(wheel) == {build.machine(): Path(build.library()).read_bytes()}
    assert b"\nRoot-Is-Purelib: false\n" in zipfile.ZipFile(wheel).read(f"{INFO}/WHEEL")
    platforms = [f"linux_{machine}" for machine in ELF]
    assert [p for p in platforms if installs(wheel, p, tmp_path)] == [f"linux_{build.machine()}"]


def test_a_wheel_without_a_compiler_has_no_library_and_installs_everywhere(
    built: Wheel, tree: Path, tmp_path: Path
) -> None:
    """Not even those that earlier builds have left: of other sources, or of other machines."""
    for machine in ELF:
        (tree / NATIVE / f"chai-{machine}.so").write_text("sources 00000000")
    wheel = built(**NO_COMPILER)
    assert wheel.name == PURE
    assert libraries(wheel) == {}
    assert installs(wheel, "linux_aarch64", tmp_path)


def test_the_wheel_of_all_machines_has_a_library_for_each(built: Wheel, tree: Path, tmp_path: Path) -> None:
    """Made by a compiler that writes the name of its target."""
    (tree / NATIVE / "chai-riscv64.so").touch()
    (compiler(tmp_path) / "__main__.py").write_text(ZIG)
    wheel = built(CHAI_BUILD="zig")
    assert wheel.name == PURE
    assert libraries(wheel) == {
        "x86_64": b"x86_64-linux-gnu.2.17",
        "aarch64": b"aarch64-linux-gnu.2.17",
        "armv7l": b"arm-linux-gnueabihf.2.27",
    }


@needs_library
def test_a_library_that_is_left_is_packed_alone_or_not_at_all(built: Wheel, tree: Path) -> None:
    for machine in {*ELF, build.machine()}:
        shutil.copy(build.library(), tree / NATIVE / f"chai-{machine}.so")
    wheel = built(**NO_COMPILER)  # nothing has to be compiled
    assert wheel.name == OWN
    assert [*libraries(wheel)] == [build.machine()]
    wheel = built(CHAI_BUILD="none")
    assert wheel.name == PURE
    assert libraries(wheel) == {}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CHAI_BUILD": "zip"}, "CHAI_BUILD is 'zip'; expected zig (kernels of every machine) or none"),
        ({"CHAI_BUILD": "zig"}, "the kernels of every machine were not compiled: "),
    ],
)
def test_what_was_asked_for_and_cannot_be_done_is_an_error(
    built: Wheel, tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    compiler(tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        built(**variables)
    assert message in (caught.value.stdout + caught.value.stderr).decode()


@pytest.mark.slow
def test_zig_compiles_small_libraries_that_are_loaded_only_where_they_fit(tree: Path, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(tree)]
    subprocess.run(pip, env={**os.environ, "CHAI_BUILD": "zig"}, check=True, capture_output=True, timeout=HANG)
    packed = libraries(tmp_path / PURE)
    assert {machine: int.from_bytes(code[18:20], "little") for machine, code in packed.items()} == ELF
    assert max(map(len, packed.values())) < 1_500_000
    site = tmp_path / "site"
    zipfile.ZipFile(tmp_path / PURE).extractall(site)
    code = "from chai.kernels.native import library as l; print(l.state().reason, len(l.state().variants))"

    def loaded() -> str:
        env = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(
            [sys.executable, "-c", code], env=env, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    assert loaded().startswith(" ") and int(loaded()) > 0
    other = next(machine for machine in ELF if machine != build.machine())
    (site / NATIVE / f"chai-{build.machine()}.so").write_bytes(packed[other])
    assert f"chai-{build.machine()}.so cannot be loaded" in loaded()
