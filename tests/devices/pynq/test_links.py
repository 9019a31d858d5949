"""NAME.bit.link: pynqutils itself fetches what it names, from this machine, and compares the checksum."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chai
from chai.errors import DeviceError

pytest.importorskip("pynq", reason="no pynq here: nox -s driver")

IMAGE = np.random.default_rng(3).random((1, 1, 8, 8)).astype(np.float32)
BOARD = "Pynq-Z2"


@pytest.fixture
def files(board: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The overlay's two files, moved to where only a link leads; by suffix."""
    server = tmp_path / "server"
    server.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(server))  # pynqutils leaves a file there
    monkeypatch.setenv("BOARD", BOARD)
    places = {}
    for suffix in ("bit", "hwh"):
        path = board.overlay.path.with_name(f"{board.overlay.name}.{suffix}")
        places[suffix] = path.rename(server / path.name)
    return places


def entry(file: Path, **changed: str) -> dict[str, str]:
    return {"url": file.as_uri(), "md5sum": hashlib.md5(file.read_bytes()).hexdigest(), **changed}


def link(board: Any, suffix: str, content: dict[str, Any]) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.{suffix}.link").write_text(json.dumps(content))


def load(board: Any) -> None:
    wanted = chai.Net("digits", overlay=board.overlay.path, calibrate=IMAGE).forward(IMAGE)
    outputs = chai.Net("digits", device="pynq", overlay=board.overlay.path, calibrate=IMAGE).forward(IMAGE)
    assert all(np.array_equal(outputs[b], wanted[b]) for b in wanted)


def names(board: Any) -> set[str]:
    folder = board.overlay.path.parent
    return {str(p.relative_to(folder)) for p in folder.rglob("*.*") if p.is_file() and p.suffix in (".bit", ".hwh")}


def test_one_bitstream_for_every_board(board: Any, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BOARD")  # need not be known
    for suffix, file in files.items():
        link(board, suffix, entry(file))
    load(board)
    assert board.downloads == 1
    name = board.overlay.name
    assert names(board) == {f"{name}.bit", f"{name}.hwh"}
    for file in files.values():
        file.unlink()
    load(board)  # there is nothing more to fetch


def test_a_bitstream_for_each_board(board: Any, files: dict[str, Path]) -> None:
    """The handoff is beside the bitstream then, which pynqutils does not see to."""
    for suffix, file in files.items():
        link(board, suffix, {"Other": entry(file, url="file:///nowhere"), BOARD: entry(file)})
    load(board)
    name = board.overlay.name
    assert f"{name}.bit.d/{name}.{BOARD}.bit" in names(board) and f"{name}.bit.d/{name}.{BOARD}.hwh" in names(board)


@pytest.mark.parametrize("suffix", ["bit", "hwh"])
@pytest.mark.parametrize("each", [False, True], ids=["for all boards", "for each board"])
def test_a_wrong_checksum_is_refused(board: Any, files: dict[str, Path], suffix: str, each: bool) -> None:
    for other, file in files.items():
        content = entry(file, md5sum="0" * 32) if other == suffix else entry(file)
        link(board, other, {BOARD: content} if each else content)
    with pytest.raises(DeviceError, match=r"\.bit\.link leads nowhere: Incorrect checksum") as caught:
        load(board)
    assert "md5sum has to be that of the file" in str(caught.value.hint)
    assert board.downloads == 0 and not any(name.endswith(f".{suffix}") for name in names(board))
    link(board, suffix, {BOARD: entry(files[suffix])} if each else entry(files[suffix]))
    load(board)


def test_a_file_that_is_gone(board: Any, files: dict[str, Path]) -> None:
    link(board, "bit", entry(files["bit"], url="file:///nowhere/at/all.bit"))
    with pytest.raises(DeviceError, match=r"No such file or directory: '/nowhere/at/all\.bit'"):
        load(board)


def test_a_link_for_other_boards(board: Any, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    link(board, "bit", {"Other": entry(files["bit"])})
    with pytest.raises(DeviceError, match="leads nowhere: Could not resolve file") as caught:
        load(board)
    assert f"has to name the board, BOARD says {BOARD!r}" in str(caught.value.hint)
    monkeypatch.delenv("BOARD")  # sudo has dropped it
    with pytest.raises(DeviceError, match="leads nowhere") as caught:
        load(board)
    assert "BOARD is not set" in str(caught.value.hint)


def test_a_link_that_is_none(board: Any, files: dict[str, Path]) -> None:
    board.overlay.path.with_name(f"{board.overlay.name}.bit.link").write_text("see the release page")
    with pytest.raises(DeviceError, match="leads nowhere: Expecting value"):
        load(board)
    assert files
