"""The cache of compiled simulations. Nothing is compiled here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chai.devices.rtlsim import simulation, tools
from chai.env import env
from chai.errors import DeviceError


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The program that compiles, which only says its version; a library holds the design's text."""
    program = tmp_path / "c++"
    program.write_text("#!/bin/sh\necho c++ 12.2\n")
    program.chmod(0o755)

    def build(text: str, folder: Path, command: Sequence[str]) -> Path:
        (folder / "design.so").write_text(text)
        return folder / "design.so"

    monkeypatch.setattr(simulation, "check", lambda: None)
    monkeypatch.setattr(simulation, "version", lambda package: "0")
    monkeypatch.setattr(simulation, "compiler", lambda: [str(program)])
    monkeypatch.setitem(simulation.SIMULATORS, "cxxrtl", build)
    monkeypatch.setenv("CHAI_CACHE", str(tmp_path / "cache"))
    env.cache_clear()
    yield program
    env.cache_clear()


@pytest.mark.usefixtures("compiler")
def test_what_a_killed_compilation_left_is_removed() -> None:
    path = simulation.library("one", "cxxrtl")
    other = simulation.library("other", "cxxrtl")
    path.unlink()
    stale = path.parent / f".{path.stem}-killed"
    stale.mkdir()
    (stale / "half.o").write_text("half")
    assert simulation.library("one", "cxxrtl") == path
    assert path.read_text() == "one" and other.read_text() == "other"
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".lock", ".lock", ".so", ".so"]


def test_another_version_of_the_compiler_compiles_again(compiler: Path) -> None:
    path = simulation.library("one", "cxxrtl")
    assert simulation.library("one", "cxxrtl") == path
    compiler.write_text(compiler.read_text().replace("12.2", "13.1"))
    assert simulation.library("one", "cxxrtl") != path


def test_a_compiler_that_does_not_start_is_named(compiler: Path) -> None:
    compiler.write_text("#!/bin/sh\necho no such option >&2\nexit 3\n")
    with pytest.raises(DeviceError, match=r"c\+\+ ended with 3:.*no such option"):
        simulation.library("one", "cxxrtl")


def test_what_designs_share_is_compiled_once(compiler: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\necho code > part.o\n')
    command, source = [str(compiler)], tmp_path / "shared.cpp"
    paths = [tools.compiled(command, source, ["-Ihere"], version) for version in ("5.1", "5.1", "5.2")]
    assert paths[0] == paths[1] != paths[2] and Path(paths[0]).read_text() == "code\n"
    calls = [line for line in log.read_text().splitlines() if line != "--version"]
    assert calls == [f"-Ihere -c {source} -o part.o"] * 2
