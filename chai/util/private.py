"""Folders that only this user can write to, for files that are executed as code when they are loaded."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

GROUP, OTHERS = stat.S_IWGRP, stat.S_IWOTH


class NotPrivateError(Exception):
    """Another user could have written to a folder; the text says which and how."""


def private_folder(root: Path, *inside: str) -> Path:
    """Return root/inside, created with mode 0700 if it is missing.

    Root, the folders inside it and the content of the last one must belong to this user, must not be links, and must be
    writable only by this user; a group's write permission is removed. In the folders above root, no other user may be able
    to rename an entry. Raises NotPrivateError, or OSError if it cannot be created.
    """
    root = Path(os.path.abspath(root))
    root.parent.mkdir(parents=True, exist_ok=True)
    for parent in {*root.parents, *root.parent.resolve().parents, root.parent.resolve()}:
        _check_parent(parent)
    folder = root
    for name in ("", *inside):
        folder = folder / name
        folder.mkdir(mode=0o700, exist_ok=True)
        _claim(folder)
    for place, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            _claim(Path(place, entry))
    return folder


def _claim(path: Path) -> None:
    """Check one folder or file, and remove its group's write permission."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise NotPrivateError(f"{path} is a link")
    if not (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)):
        raise NotPrivateError(f"{path} is neither a folder nor a file")
    if status.st_uid != os.getuid():
        raise NotPrivateError(f"{path} belongs to user {status.st_uid}, not to this one ({os.getuid()})")
    if status.st_mode & OTHERS:
        raise NotPrivateError(f"{path} is writable by others (mode {stat.S_IMODE(status.st_mode):04o})")
    if status.st_mode & GROUP:
        path.chmod(stat.S_IMODE(status.st_mode) & ~GROUP)


def _check_parent(path: Path) -> None:
    """Raise NotPrivateError if another user could rename an entry of a folder."""
    status = path.stat()
    mode = status.st_mode
    if status.st_uid not in (0, os.getuid()):
        raise NotPrivateError(f"{path}, which it is in, belongs to user {status.st_uid}")
    if mode & stat.S_ISVTX:  # only an entry's owner may rename it
        return
    if mode & OTHERS or (mode & GROUP and not _is_private_group(status.st_gid)):
        who = "others" if mode & OTHERS else "its group"
        raise NotPrivateError(f"{path}, which it is in, is writable by {who} (mode {stat.S_IMODE(mode):04o})")


@lru_cache(maxsize=16)
def _is_private_group(group: int) -> bool:
    """Return whether this user is the only member of a group: many systems create such a group for each user."""
    import grp
    import pwd

    try:
        user, members = pwd.getpwuid(os.getuid()), grp.getgrgid(group)
    except KeyError:
        return False
    return group == user.pw_gid and members.gr_name == user.pw_name and set(members.gr_mem) <= {user.pw_name}
