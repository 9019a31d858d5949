"""Files that appear complete or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from chai.errors import UsageError
from chai.frames.writers import WholeFile
from chai.util import files
from chai.util.files import complete, locked, obstacle, opened
from tests.conftest import HANG


def test_the_name_is_taken_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")
    with complete(str(path)) as part:
        part.write_text("after")
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_what_stops_half_way_leaves_the_old_file(tmp_path: Path, stop: type[BaseException]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")
    with pytest.raises(stop), complete(path) as part:
        part.write_text("hal")
        raise stop
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    """As by cp, gcc -o and curl -o; also if nothing is there yet, and through several."""
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("old")
    for name, place in (("link", "far/file"), ("new", "far/made"), ("twice", "link"), ("lost", "nowhere/file")):
        (tmp_path / name).symlink_to(place)
    for name, place in (("link", "far/file"), ("new", "far/made"), ("twice", "far/file")):
        with complete(tmp_path / name) as part:
            assert part.parent == tmp_path / "far"
            part.write_text(name)
        assert (tmp_path / name).is_symlink() and (tmp_path / place).read_text() == name
        assert obstacle(tmp_path / name) == ""
    assert [path.name for path in sorted((tmp_path / "far").iterdir())] == ["file", "made"]
    assert "there is no folder" in obstacle(tmp_path / "lost")
    with pytest.raises(FileNotFoundError) as caught, complete(tmp_path / "lost") as part:
        part.touch()
    assert caught.value.filename == str(tmp_path / "lost")
    whole = WholeFile(tmp_path / "link")
    whole.append(b"frames")
    whole.close()
    assert (tmp_path / "far" / "file").read_bytes() == b"frames" and (tmp_path / "link").is_symlink()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'[^']*/no/a\.csv'$"), complete(tmp_path / "no" / "a.csv") as part:
        part.write_text("x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [None, 0, b"a.csv", ["a.csv"], object()], ids=lambda path: type(path).__name__)
def test_what_is_no_path(path: Any) -> None:
    """0 would be standard input."""
    words = f"expected the path of a file, found {type(path).__name__}"
    with pytest.raises(UsageError, match=words):
        opened(path)
    with pytest.raises(UsageError, match=words), complete(path):
        pass


def test_a_full_disk_is_said_with_the_name(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.csv'"), complete(tmp_path / "a.csv") as part:
        part.write_text("x")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_of_several_that_write_one_file_each_writes_its_own(tmp_path: Path) -> None:
    """The last one to end has the name; none sees, renames or removes what another one has begun."""
    path = tmp_path / "a.csv"
    with complete(path) as first:
        first.write_text("one")
        with complete(path) as second:
            second.write_text("two")
        assert (path.read_text(), first.read_text()) == ("two", "one")
        with pytest.raises(KeyboardInterrupt), complete(path) as third:
            third.write_text("thr")
            raise KeyboardInterrupt
    assert path.read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("letter", ["x", "\u00e4", "\U0001f600"])
def test_a_name_may_be_as_long_as_the_system_takes(tmp_path: Path, letter: str) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    with complete(path) as part:
        part.write_text("x")
    assert path.read_text() == "x"


def test_a_lock_is_for_one_at_a_time(tmp_path: Path) -> None:
    path, waits, order = tmp_path / "x.lock", Event(), list[str]()

    def second() -> None:
        with locked(path, waits.set):
            order.append("second")

    thread = Thread(target=second)
    with locked(path):
        thread.start()
        assert waits.wait(HANG)
        order.append("first")
    thread.join(HANG)
    assert order == ["first", "second"]
    with locked(path, lambda: pytest.fail("it waits for nobody")):
        assert path.is_file()


KILLED = """
import os, signal, sys
from chai.util.files import complete
with complete("net.chai") as part:
    part.write_text("half of it")
    if sys.argv[1] == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    print(flush=True)
    input()
"""


def test_what_a_killed_process_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files._clean.cache_clear()
    command = [sys.executable, "-c", KILLED]
    with subprocess.Popen([*command, "lives"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as living:
        assert living.stdout is not None and living.stdout.readline()
        (alive,) = tmp_path.iterdir()
        subprocess.run([*command, "dies"], check=False)
        (dead,) = {*tmp_path.iterdir()} - {alive}
        mark, number = dead.name.split(".")[-4:-2]
        others = {
            tmp_path / f"net.chai.{mark}.{living.pid}.00000000.part",  # of a living process
            tmp_path / f"net.chai.00000000.{number}.00000000.part",  # of another machine, or before the last boot
            *(
                tmp_path / name
                for name in ("net.chai.part", "net.part", "part", f"{mark}.{number}.notes", "net.chai.1a2b3c4d.part")
            ),
        }
        for other in others:
            other.touch()
        with complete(Path("net.chai")) as part:
            part.write_text("all of it")
        assert {*tmp_path.iterdir()} == {alive, *others, tmp_path / "net.chai"}
        living.communicate(b"\n")
    assert Path("net.chai").read_text() == "half of it" and not alive.exists()
