"""private_folder: what it makes, what it repairs, and which folders it refuses. With real modes, owners and links."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from chai.util import private
from chai.util.private import NotPrivateError, private_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs POSIX owners and modes")
needs_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away")
OTHER = 12345  # a user, and a group, that is not ours


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache in a folder of its own, with one file deep inside."""
    file = private_folder(tmp_path / "home" / "cache", "numba", "hash") / "sub" / "f.nbi"
    file.parent.mkdir()
    file.write_bytes(b"code")
    return tmp_path / "home" / "cache"


def test_what_it_makes_is_this_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder(tmp_path / "cache", "numba", "hash")
    finally:
        os.umask(before)
    assert folder == tmp_path / "cache" / "numba" / "hash"
    assert [mode(f) for f in (folder, folder.parent, folder.parent.parent)] == [0o700] * 3


def test_the_groups_right_to_write_is_taken_away(cache: Path) -> None:
    inside = [cache, cache / "numba", cache / "numba" / "hash", cache / "numba" / "hash" / "sub" / "f.nbi"]
    for path in inside:
        path.chmod(0o775)
    private_folder(cache, "numba", "hash")
    assert [mode(path) for path in inside] == [0o755] * 4


PLACES = ["cache", "cache/numba", "cache/numba/hash", "cache/numba/hash/sub", "cache/numba/hash/sub/f.nbi"]


@pytest.mark.parametrize("place", PLACES)
def test_a_folder_or_file_that_others_can_write(cache: Path, place: str) -> None:
    path = cache.parent / place
    path.chmod(0o757)
    with pytest.raises(NotPrivateError, match=rf"^{path} is writable by others \(mode 0757\)$"):
        private_folder(cache, "numba", "hash")


@needs_root
@pytest.mark.parametrize("place", PLACES)
def test_a_folder_or_file_of_another_user(cache: Path, place: str) -> None:
    path = cache.parent / place
    os.chown(path, OTHER, -1)
    with pytest.raises(NotPrivateError, match=rf"^{path} belongs to user {OTHER}, not to this one \({os.getuid()}\)$"):
        private_folder(cache, "numba", "hash")


@pytest.mark.parametrize("place", PLACES)
def test_a_link(cache: Path, place: str) -> None:
    path = cache.parent / place
    path.rename(cache.parent.parent / "elsewhere")
    path.symlink_to(cache.parent.parent / "elsewhere")
    with pytest.raises(NotPrivateError, match=rf"^{path} is a link$"):
        private_folder(cache, "numba", "hash")


def test_a_pipe(cache: Path) -> None:
    os.mkfifo(cache / "numba" / "hash" / "pipe")
    with pytest.raises(NotPrivateError, match="pipe is neither a folder nor a file"):
        private_folder(cache, "numba", "hash")


# -- the folders above


def _shared(path: Path) -> None:
    os.chown(path, -1, OTHER)
    path.chmod(0o775)


def _readable(path: Path) -> None:
    os.chown(path, -1, OTHER)
    path.chmod(0o755)


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "writable": (lambda p: p.chmod(0o777), r"is writable by others \(mode 0777\)"),
    "of a shared group": (_shared, r"is writable by its group \(mode 0775\)"),
    "of another user": (lambda p: os.chown(p, OTHER, -1), f"belongs to user {OTHER}"),
}
ACCEPTED: dict[str, Callable[[Path], None]] = {
    "sticky": lambda p: p.chmod(0o1777),
    "readable": lambda p: p.chmod(0o755),
    "of a group that may not write": _readable,
}


@needs_root
@pytest.mark.parametrize("above", [1, 2])
@pytest.mark.parametrize("case", REFUSED)
def test_a_parent_in_which_another_user_could_rename(cache: Path, case: str, above: int) -> None:
    change, words = REFUSED[case]
    parent = cache.parents[above - 1]
    change(parent)
    with pytest.raises(NotPrivateError, match=rf"^{parent}, which it is in, {words}$"):
        private_folder(cache, "numba", "hash")


@needs_root
@pytest.mark.parametrize("case", ACCEPTED)
def test_a_parent_in_which_no_other_user_could(cache: Path, case: str) -> None:
    ACCEPTED[case](cache.parent)
    assert private_folder(cache, "numba", "hash").is_dir()


def test_a_parent_writable_by_the_users_private_group(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the umask is 002, since each user has a group of one."""
    cache.parent.chmod(0o775)
    monkeypatch.setattr(private, "_is_private_group", lambda group: group == cache.parent.stat().st_gid)
    assert private_folder(cache, "numba", "hash").is_dir()
    monkeypatch.setattr(private, "_is_private_group", lambda group: False)
    with pytest.raises(NotPrivateError, match="is writable by its group"):
        private_folder(cache, "numba", "hash")


def test_what_a_private_group_is() -> None:
    import grp
    import pwd

    private._is_private_group.cache_clear()
    user = pwd.getpwuid(os.getuid())
    own = grp.getgrgid(user.pw_gid)
    alone = own.gr_name == user.pw_name and set(own.gr_mem) <= {user.pw_name}
    assert private._is_private_group(user.pw_gid) == alone
    assert not any(private._is_private_group(g.gr_gid) for g in grp.getgrall() if g.gr_gid != user.pw_gid)
    assert not private._is_private_group(OTHER)  # without a name


def test_a_parent_that_is_reached_through_a_link(cache: Path) -> None:
    """A link above the cache is the user's business; the folders that it leads through count."""
    link = cache.parent.parent / "link"
    link.symlink_to(cache.parent)
    assert private_folder(link / "cache", "numba", "hash").is_dir()
    cache.parent.chmod(0o777)
    with pytest.raises(NotPrivateError, match="is writable by others"):
        private_folder(link / "cache", "numba", "hash")


def test_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    with pytest.raises(OSError):
        private_folder(tmp_path / "cache", "numba")
