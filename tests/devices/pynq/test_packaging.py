"""What PYNQ's own tools find of an installed chai, and that installing it leaves an SD image's libraries as they are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from chai import hw_overlays, overlay as overlays
from chai.util.paths import resource
from tests.conftest import HANG, ROOT

needs_pynq = pytest.mark.skipif(not find_spec("pynq"), reason="no pynq here: nox -s driver")
BOARD = (ROOT / "docs" / "board.md").read_text()
NOTEBOOKS = sorted(p.name for p in (ROOT / "chai" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site folder with chai as it is installed."""
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    return site


def python(code: str, site: Path, folder: Path, *arguments: str) -> str:
    """What another interpreter, which knows chai from ``site`` only, says."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(site)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


GET_NOTEBOOKS = "import sys; from pynq._cli.get_notebooks import main; sys.argv[0] = 'get-notebooks'; main()"


@needs_pynq
def test_pynq_lists_and_copies_the_notebooks(installed: Path, tmp_path: Path) -> None:
    assert "- chai (source: chai)" in python(GET_NOTEBOOKS, installed, tmp_path, "--list").splitlines()
    python(GET_NOTEBOOKS, installed, tmp_path, "chai", "--ignore-overlays")
    copied = tmp_path / "pynq-notebooks" / "chai"
    assert sorted(p.name for p in copied.iterdir()) == NOTEBOOKS
    for name in NOTEBOOKS:
        assert json.loads((copied / name).read_text())["nbformat"] == 4


@needs_pynq
def test_pynq_finds_a_bitstream_by_its_bare_name(installed: Path, tmp_path: Path) -> None:
    """Beside the overlay's manifest, where chai's own driver looks for it."""
    bit = installed / "chai" / "_data" / "hw_overlays" / "pynq-z2" / "pynq-z2.bit"
    bit.touch()
    code = "from pynq.bitstream import Bitstream; print(Bitstream('pynq-z2.bit', device=object()).bitfile_name)"
    assert python(code, installed, tmp_path).splitlines()[-1] == str(bit)


@needs_pynq
def test_pynq_loads_an_overlay_by_its_bare_name(
    installed: Path, board_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout, too: the name that is registered stands for the folder wherever that is."""
    import pkg_resources
    import pynq

    board = board_of()
    assert hw_overlays.__path__ == [str(resource("hw_overlays"))]
    monkeypatch.setattr(hw_overlays, "__path__", [str(Path(board.overlay.path).parent.parent)])
    distribution = next(iter(pkg_resources.find_distributions(str(installed))))
    monkeypatch.setattr(pkg_resources, "iter_entry_points", lambda group: distribution.get_entry_map(group).values())
    loaded = pynq.Overlay(f"{board.overlay.name}.bit", device=board)
    assert Path(loaded.bitfile_name).parent == Path(board.overlay.path).parent
    assert [ip["type"] for ip in loaded.ip_dict.values()].count(board.overlay.vlnv) == 1


def test_the_registered_folder_has_every_overlay() -> None:
    (folder,) = map(Path, hw_overlays.__path__)
    assert {p.parent.name for p in folder.glob("*/overlay.json")} == set(overlays.names())


# -- into an SD image's own environment

IMAGE = ["pynq==3.0.1", "numpy==1.21.5", "pillow==9.0.1", "pycparser<3"]  # v3.0.1: Ubuntu 22.04's, and pynq's
KEPT = {"numpy": "1.21.5", "pillow": "9.0.1", "pynq": "3.0.1"}
# pip on a 32-bit ARM board: what a requirement's marker asks for
PIP_ARMV7L = "import platform; platform.machine = lambda: 'armv7l'; from pip._internal.cli.main import main; main()"


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=env, capture_output=True, text=True, timeout=HANG, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def versions(python: Path, folder: Path) -> dict[str, str]:
    """Everything that is installed, by name in small letters."""
    lines = json.loads(run(python, "-m", "pip", "list", "--format=json", folder=folder))
    return {line["name"].lower(): line["version"] for line in lines}


def documented(begin: str) -> str:
    """The lines of docs/board.md's shell block that begins so."""
    (block,) = [b for b in re.findall(r"```sh\n(.*?)```", BOARD, re.DOTALL) if b.startswith(begin)]
    return str(block)


def test_the_page_quotes_what_the_driver_says() -> None:
    quoted = re.findall(r"^\| `([^`\d]+)", BOARD[BOARD.index("| message | remedy |") :].split("\n\n")[0], re.MULTILINE)
    assert len(quoted) == 5
    driver = "".join(file.read_text() for file in (ROOT / "chai" / "devices" / "pynq").glob("*.py"))
    assert [text for text in quoted if text not in driver] == [
        "attribute 'device' of 'numpy.ndarray' objects is not writable"
    ]


SLOW = [
    pytest.mark.slow,
    pytest.mark.timeout(4 * HANG),
    pytest.mark.skipif(sys.version_info[:2] != (3, 10), reason="the image's Python is 3.10: nox -s pynq -- -m slow"),
]


def slow(test: Callable[..., None]) -> Callable[..., None]:
    for mark in SLOW:
        test = mark(test)
    return test


@slow
@pytest.mark.parametrize(
    ("constraints", "wanted"),
    [([], {"numpy": "1", "pycparser": "2"}), (["-c", "constraints-board.txt"], {"numpy": "1.21.5", "pynq": "3.0.1"})],
    ids=["newest", "board"],
)
def test_the_extra_finds_versions_that_fit(
    wheel: Path, tmp_path: Path, constraints: list[str], wanted: dict[str, str]
) -> None:
    venv.create(tmp_path / "pc", with_pip=True)
    pip = tmp_path / "pc" / "bin" / "pip"
    last = run(pip, "install", "--dry-run", f"{wheel}[pynq]", *constraints, folder=ROOT).splitlines()[-1]
    versions_by_name = dict(word.rpartition("-")[::2] for word in last.split()[2:])
    for name, version in wanted.items():
        assert (versions_by_name[name] + ".").startswith(version + "."), last
    assert versions_by_name["pynq"] >= "3.0.1"


@slow
def test_an_image_keeps_its_numpy_and_its_pynq(wheel: Path, tmp_path: Path) -> None:
    """What docs/board.md says to type, in an environment like the image's, on 64 and on 32 bits."""
    venv.create(tmp_path / "image", with_pip=True)
    bin = tmp_path / "image" / "bin"
    run(bin / "pip", "install", *IMAGE, folder=tmp_path)
    before = versions(bin / "python", tmp_path)
    assert {name: before[name] for name in KEPT} == KEPT

    unguarded = run(bin / "pip", "install", "--dry-run", wheel, folder=tmp_path)
    assert "numpy-2" in unguarded.splitlines()[-1], "the page's constraints are not needed any more"

    (tmp_path / wheel.name).symlink_to(wheel)
    path = f"{bin}:{os.environ['PATH']}"
    commands = documented("pip list")
    keep, install = commands.splitlines()
    run("bash", "-ec", keep, folder=tmp_path, PATH=path)
    arguments = install.replace("*", wheel.name.removeprefix("chai_fpga-").removesuffix(".whl")).split()[1:]

    small = run(bin / "python", "-c", PIP_ARMV7L, *arguments, "--dry-run", folder=tmp_path).splitlines()[-1]
    assert small.startswith("Would install chai-fpga-") and "protobuf-" in small
    assert not re.search(r"numpy|numba|llvmlite|pynq|pillow", small, re.IGNORECASE)
    names = [word.rpartition("-")[0] for word in small.split()[2:] if not word.startswith("chai-fpga-")]
    wheels = ["--no-deps", "--only-binary=:all:", "--platform=linux_armv7l", "--python-version=3.10", "-d", "small"]
    run(bin / "pip", "download", *wheels, *names, folder=tmp_path)  # nothing is left to compile on a board
    assert all(p.name.endswith("-none-any.whl") for p in (tmp_path / "small").iterdir())

    run("bash", "-ec", commands, folder=tmp_path, PATH=path)
    after = versions(bin / "python", tmp_path)
    assert {name: after[name] for name in before} == before
    assert {"chai-fpga", "numba"} <= set(after) - set(before)

    digit = resource("prototxt", "digits_images", "digit_0024_4.png")
    run(bin / "chai", "compile", "digits", "--calibration", digit.parent, "-o", "net.chai", folder=tmp_path)
    answer = run(bin / "chai", "run", "net.chai", "-i", digit, "--top", "1", folder=tmp_path)
    run(bin / "pip", "uninstall", "-y", "numba", "llvmlite", folder=tmp_path)  # as on 32 bits
    plain = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
    assert "  4\n" in answer
    slow = run(bin / "chai", "run", "net.chai", "-i", digit, "--top", "1", folder=tmp_path, **plain)
    assert slow.splitlines()[:3] == answer.splitlines()[:3]
    assert "4" in run(bin / "chai", "run", "digits", "-i", digit, "--top", "1", folder=tmp_path, **plain)
