"""Arrays in temporary files: equal, out of memory when they rest, gone with their last reference."""

from __future__ import annotations

import gc
import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest

from chai.util.data import shelf as module
from chai.util.data.shelf import FILE, Shelf
from tests.conftest import HANG

SHORT = 0.3  # seconds for another thread to do what it must not do


def resident_files() -> int:
    """Bytes of mapped files that are in this process's memory; those of a tmpfs are counted apart."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssFile", "RssShmem")))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64])
def test_what_is_put_is_read_again(dtype: type) -> None:
    rng, shelf = np.random.default_rng(0), Shelf()
    arrays = [rng.integers(-100, 100, shape).astype(dtype) for shape in ((3, 5, 7), (1,), (), (0, 4), (2, 3))]
    stored = [shelf.put(array) for array in arrays]
    shelf.rest()
    for a, b in zip(arrays, stored):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def test_what_is_put_may_be_changed_and_does_not_change_what_was_given() -> None:
    shelf, array = Shelf(), np.arange(6.0).reshape(2, 3).T
    stored = shelf.put(array)
    stored[...] = 0
    shelf.rest()
    assert not stored.any() and array[2, 1] == 5


def test_arrays_that_rest_need_no_memory() -> None:
    shelf, size = Shelf(), 2 * FILE + 5
    stored = shelf.put(np.ones(size, np.int8))
    used = resident_files()
    shelf.rest()
    assert used - resident_files() > size // 2
    assert stored.sum(dtype=np.int64) == size


def test_files_go_with_their_last_array() -> None:
    shelf = Shelf()
    arrays = [shelf.put(np.full(FILE, number, np.int8)) for number in range(3)]
    assert len(shelf._files) == 3
    kept = arrays[1][:10]
    del arrays
    gc.collect()
    assert len(shelf._files) == 2  # that of ``kept``, and the current one
    assert (kept == 1).all()


def test_arrays_rest_while_another_thread_puts_more() -> None:
    """As the threads do that run one layer on several batches."""
    shelf, threads = Shelf(), list[threading.Thread]()
    full = np.ones(FILE, np.int8)  # each is in a file of its own

    class Files(WeakSet[mmap.mmap]):
        def __iter__(self) -> Iterator[mmap.mmap]:
            for file in super().__iter__():
                threads.append(threading.Thread(target=lambda: kept.append(shelf.put(full))))
                threads[-1].start()
                threads[-1].join(SHORT)
                yield file

    kept = [shelf.put(full)]
    shelf._files = Files(shelf._files)
    shelf.rest()
    for thread in threads:
        thread.join(HANG)
    assert len(kept) == 2 and all(array.all() for array in kept)


def test_without_room_on_the_disk_arrays_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    array = np.arange(5)
    assert Shelf().put(array) is array


def test_large_arrays_are_returned_to_the_system() -> None:
    """Half of many arrays are freed, every second one: the holes must not stay memory of the process."""
    code = (
        "import sys, numpy as np\n"
        "from chai.util.data.malloc import LARGE, return_large_arrays\n"
        "if not return_large_arrays():\n"
        "    sys.exit('another C library')\n"
        "def own():\n"
        "    return int(open('/proc/self/status').read().split('RssAnon:')[1].split()[0]) * 1024\n"
        "big = np.ones(32 * LARGE, np.uint8)\n"
        "del big  # after which glibc would put arrays of up to this size into its heap\n"
        "before, many = own(), [np.ones(2 * LARGE, np.uint8) for _ in range(64)]\n"
        "full = own() - before\n"
        "del many[::2]\n"
        "print(full // LARGE, (own() - before) // LARGE)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.stderr == "another C library\n":
        pytest.skip(done.stderr)
    full, left = map(int, done.stdout.split())
    assert 120 < full < 140 and left < 75  # 128 and 64, and some bytes beside
