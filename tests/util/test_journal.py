"""Records survive interruption, and a journal belongs to one run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from chai.errors import ParseError, UsageError
from chai.util.data.journal import Journal

RUN = {"network weights": "ab12", "options": {"batch": 8, "mean": (104.0, 117.0)}}
RECORDS = [
    {"image": i, "float": [i, 7], "emulator": {"best": [7, i], "kl": 0.1 * i, "sqnr": 1e-300}} for i in (4, 0, 2)
]


def test_what_was_written_is_found_to_the_bit(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", RUN) as journal:
        assert journal.records == {}
        journal.add(RECORDS[:2])
        journal.add(RECORDS[2:])
    with Journal(tmp_path / "j", RUN) as journal:
        assert journal.records == {r["image"]: r for r in RECORDS}


def test_cut_anywhere_it_keeps_whole_lines(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", RUN) as journal:
        journal.add(RECORDS)
    whole = (tmp_path / "j").read_bytes()
    ends = [m.end() for m in re.finditer(b"\n", whole)]
    for size in range(len(whole) + 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        kept = RECORDS[: max(sum(end <= size for end in ends) - 1, 0)]
        with Journal(tmp_path / "cut", RUN) as journal:
            assert journal.records == {r["image"]: r for r in kept}
            journal.add(RECORDS[len(kept) :])
        assert (tmp_path / "cut").read_bytes() == whole


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: 'a prototxt'\n", "this is no journal of chai"),
        ("{", None),  # the beginning of one
        ('{"schema": "chai.journal/9"}\n', "expected schema chai.journal/2, found 'chai.journal/9'"),
        ('{"schema": "chai.journal/1"\n', "j:1:1: this is no line of a journal"),
        ("HEAD\n{}\n", "j:2:1: this is no line of a journal"),
        ("HEAD\nnull\n", "j:2:1: this is no line of a journal"),
        ("HEAD\nONE\nONE\n", "j:3:1: image 1 is here twice"),
        ('HEAD\n{"image": 1}\n', "j:2:1: this line was changed (checksum)"),
        ('HEAD\nONE\n{"image": 2, "crc": true}\n', "j:3:1: this line was changed (checksum)"),
        ("HEAD\n" + "[" * 100_000 + "\n", "j:2:1: this is no line of a journal"),
        ("HEAD\n\xff\xfe\n", "j:2:1: this is no line of a journal"),
    ],
)
def test_what_is_no_journal_stays_as_it_is(tmp_path: Path, text: str, words: str | None) -> None:
    path = tmp_path / "j"
    with Journal(path, RUN) as journal:
        journal.add([{"image": 1}])
    head, one = path.read_bytes().splitlines()
    data = text.encode("latin-1").replace(b"HEAD", head).replace(b"ONE", one)
    path.write_bytes(data)
    if words is None:
        with Journal(path, RUN) as journal:
            assert journal.records == {}
        return
    with pytest.raises(ParseError, match=re.escape(words)):
        Journal(path, RUN)
    assert path.read_bytes() == data


def test_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    with Journal(tmp_path / "j", RUN) as journal:
        journal.add(RECORDS)
    other = {**RUN, "network weights": "cd34", "images": "5"}
    with pytest.raises(UsageError, match="is of another run: its images, network weights differ"):
        Journal(tmp_path / "j", other)
    with Journal(tmp_path / "j", other, restart=True) as journal:
        assert journal.records == {}


def test_one_process_at_a_time(tmp_path: Path) -> None:
    code = f"from chai.util.data.journal import Journal; Journal({str(tmp_path / 'j')!r}, {{}})"
    with Journal(tmp_path / "j", {}):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
        )
    assert "UsageError" in done.stderr and "another process is writing it" in done.stderr


FULL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
from chai.util.data.journal import Journal
try:
    with Journal(sys.argv[1], {"a": 1}) as journal:
        for image in range(9):
            journal.add([{"image": image}])
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("size", [20, 100])
def test_a_full_disk_is_said_with_the_name(tmp_path: Path, size: int) -> None:
    """In its first line, or a later one; what is whole stays."""
    path = tmp_path / "j"
    done = subprocess.run([sys.executable, "-c", FULL, path, str(size)], capture_output=True, text=True, check=True)
    assert done.stdout == f"[Errno 27] File too large: {str(path)!r}\n"
    with Journal(path, {"a": 1}) as journal:
        assert len(journal.records) == (size == 100)
