"""Commands that are interrupted, killed or run out of disk: no process stays, no torn file, and what was there is whole."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from zipfile import ZipFile

import pytest

from chai.cli import guarded
from chai.net import Net
from chai.util.paths import resource as shipped
from tests.conftest import HANG, report
from tests.zoo.serving import CONTENT, NAME, Server

DIGITS = shipped("prototxt", "digits_images")
QUANTIZE = ["quantize", "digits", "--calibration", str(DIGITS), "--effort", "fast", "-o", "out.prototxt"]
OTHER = ["--bits", "6", "--effort", "normal"]
OLD = b"the old file, whole"


def ctrl_c_works() -> None:
    """As a terminal starts a command: a shell's background job has SIGINT ignored, one under nohup SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def started(folder: Path, code: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """chai under way, ``code`` run before it."""
    command = [
        sys.executable,
        "-c",
        f"{code}\nfrom chai.__main__ import main\nmain()",
        *args,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
        preexec_fn=ctrl_c_works,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def until(true: Callable[[], bool], what: str) -> None:
    end = monotonic() + HANG
    while not true():
        assert monotonic() < end, what
        sleep(0.01)


def of_session(leader: int) -> list[int]:
    """Processes of a session, but for those that have ended and wait to be asked."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            pids.append(int(stat.parent.name))
    return pids


def interrupted(process: subprocess.Popen[str], what: str) -> str:
    """Ctrl-C as a terminal sends it, to all of them; what was said on stderr."""
    begin = monotonic()
    os.killpg(process.pid, signal.SIGINT)
    _, words = process.communicate(timeout=HANG)
    report(f"Ctrl-C in {what}: {monotonic() - begin:.2f} s until it had ended")
    assert process.returncode == 130, words
    assert words.splitlines()[-1] == "interrupted"
    assert "Traceback" not in words
    assert of_session(process.pid) == []
    return words


SEARCHING = """
import time
from chai.util.data.journal import Journal
add, left = Journal.add, [3]
def slow(journal, records):
    add(journal, records)
    left[0] -= 1
    if not left[0]:  # the search does not end before the test has looked
        time.sleep(1800)
Journal.add = slow
"""


def test_ctrl_c_in_quantize(tmp_path: Path) -> None:
    """While it searches: its journal stays, what it would have written is not there."""
    journal = tmp_path / "j.jsonl"
    args = [word if word != "fast" else "best" for word in QUANTIZE]
    with started(tmp_path, SEARCHING, *args, "--journal", str(journal)) as process:
        until(lambda: journal.is_file() and journal.read_bytes().count(b"\n") > 3, "no recipe was tried")
        interrupted(process, "quantize")
    assert [file.name for file in tmp_path.iterdir()] == ["j.jsonl"]


def test_ctrl_c_where_a_cleanup_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A ZipFile is not closed while an entry is open; chai run -o writes one."""
    archive = ZipFile(tmp_path / "x.npz", "w")
    entry = archive.open("a.npy", "w")

    def work() -> int:
        with archive:
            raise KeyboardInterrupt

    assert guarded(work) == 130
    assert capsys.readouterr().err == "interrupted\n"
    entry.close()
    archive.close()  # else it is garbage that complains in another test


SLOW = """
import os, time
replace = os.replace
def slow(*names):
    open("writing", "w").close()
    time.sleep(1800)
os.replace = slow
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1])
def test_ctrl_c_while_quantize_writes(tmp_path: Path, after: int) -> None:
    (tmp_path / "out.prototxt").write_bytes(OLD)
    with started(tmp_path, SLOW if after == 0 else after_first(SLOW), *QUANTIZE) as process:
        until((tmp_path / "writing").exists, "nothing was written")
        interrupted(process, f"quantize, writing file {after + 1}")
    (tmp_path / "writing").unlink()
    assert (tmp_path / "out.prototxt").read_bytes() == OLD
    assert sorted(f.name for f in tmp_path.iterdir()) == ["out.caffemodel"] * after + ["out.prototxt"]


def after_first(code: str) -> str:
    """Let the first file be written as ever."""
    once = "first = []\nown = os.replace\ndef second(*names):\n    if first:\n        own(*names)\n    else:\n"
    return f"{code}\n{once}        first.append(names)\n        replace(*names)\nos.replace = second\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_quantize_leaves_what_ctrl_c_leaves(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "out.prototxt").write_bytes(OLD)
    with started(tmp_path, SLOW, *QUANTIZE) as process:
        until((tmp_path / "writing").exists, "nothing was written")
        process.send_signal(number)
        _, words = process.communicate(timeout=HANG)
    assert process.returncode == 128 + number, words
    assert "Traceback" not in words
    (tmp_path / "writing").unlink()
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("out.prototxt", OLD)]


def test_a_signal_that_ends_xportdnn_leaves_what_ctrl_c_leaves(tmp_path: Path) -> None:
    (tmp_path / "out.prototxt").write_bytes(OLD)
    prototxt, weights = (str(shipped("prototxt", f"digits.{kind}")) for kind in ("prototxt", "caffemodel"))
    code = f"{SLOW}\nimport sys\nfrom runpy import run_module\nrun_module('chai.xportdnn', run_name='__main__')"
    args = ["--quant_type", "DynamicFixed", "--deploy_model", prototxt, "--weights", weights]
    with started(tmp_path, code, *args, "--quantized_deploy_model", "out.prototxt") as process:
        until((tmp_path / "writing").exists, "nothing was written")
        process.send_signal(signal.SIGTERM)
        _, words = process.communicate(timeout=HANG)
    assert process.returncode == 128 + signal.SIGTERM and "Traceback" not in words
    (tmp_path / "writing").unlink()
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("out.prototxt", OLD)]


def test_sighup_stays_ignored_under_nohup(tmp_path: Path) -> None:
    ignoring = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)"
    tell = "import chai.cli\nchai.cli.main = lambda _: print(signal.getsignal(signal.SIGHUP).name)"
    with started(tmp_path, f"{ignoring}\n{tell}") as process:
        assert process.communicate(timeout=HANG)[0] == "SIG_IGN\n"


def test_what_no_reader_takes_is_dropped_after_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C ends the reader of a pipe first; Python complains of what it cannot write at its end."""
    code = """
import os, sys, chai.cli
reading, writing = os.pipe()
os.dup2(writing, 1)
os.close(reading)
sys.stdout = open(1, "w", closefd=False)  # buffered, whatever PYTHONUNBUFFERED is
def work(argv):
    print("not read")
    raise KeyboardInterrupt
chai.cli._main = work
"""
    with started(tmp_path, code) as process:
        assert process.communicate(timeout=HANG)[1] == "interrupted\n"
    assert process.returncode == 130


MEASURING = """
import time
from pathlib import Path
from chai.cli import bench_measure
def slow(*_):
    Path("measuring").touch()
    time.sleep(1800)
bench_measure.Measurement.run = slow
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_bench_measures_ends_with_it(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, MEASURING, "bench", "lenet", "--threads", "1") as process:
        until((tmp_path / "measuring").exists, "nothing was measured")
        process.send_signal(number)
        process.wait(HANG)
        until(lambda: not of_session(process.pid), "its process goes on")


KILLED = "import os, signal\nreplace = os.replace\nos.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 1])
def test_kill_9_in_quantize_leaves_whole_files(tmp_path: Path, caplog: pytest.LogCaptureFixture, after: int) -> None:
    """Each file is the old one or the new one; a prototxt with weights that are not its own says so when it is loaded."""
    names = ["out.prototxt", "out.caffemodel"]
    assert quantized(tmp_path) == 0
    old = {name: (tmp_path / name).read_bytes() for name in names}
    with started(tmp_path, KILLED if after == 0 else after_first(KILLED), *QUANTIZE, *OTHER) as process:
        process.communicate(timeout=HANG)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "out.prototxt").read_bytes() == old["out.prototxt"]
    assert ((tmp_path / "out.caffemodel").read_bytes() == old["out.caffemodel"]) == (after == 0)
    Net(tmp_path / "out.prototxt", tmp_path / "out.caffemodel", device="float").close()
    assert ("out.caffemodel" in caplog.text) == (after == 1)
    assert quantized(tmp_path) == 0  # what the killed one left is in nobody's way
    assert {name: (tmp_path / name).read_bytes() for name in names} == old


def quantized(folder: Path, **options: Any) -> int:
    command = [sys.executable, "-m", "chai", *QUANTIZE]
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, **options).returncode


def full() -> None:
    """No file may be longer than a few KB: what a full disk does, without one."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize(
    "args",
    [
        QUANTIZE,
        ["compile", "digits", "--calibration", str(DIGITS), "-o", "out.chai"],
        ["run", "digits", "-q", "-i", str(DIGITS), "-o", "out.npz"],
        pytest.param(
            ["check", "digits", "-q", "-i", str(DIGITS), "--limit", "9", "--html", "out.html"], marks=pytest.mark.slow
        ),
        ["run", "digits", "-q", "-i", str(DIGITS), "--device", "float", "--trace", "out.json"],
        pytest.param(["demo", "-q", "-o", "out.png"], marks=pytest.mark.slow),
    ],
    ids=lambda args: f"{args[0]} {args[-1]}",
)
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, args: list[str]) -> None:
    out = next(word for word in args if word.startswith("out."))
    (tmp_path / out).write_bytes(OLD)
    # Python would write the first bytes of compiled modules, and every later process fail to import these
    environment = {**os.environ, "CHAI_CACHE": os.devnull, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "chai", *args],
        cwd=tmp_path, capture_output=True, text=True, check=False, preexec_fn=full, env=environment,
    )  # fmt: skip
    assert done.returncode == 74, done.stderr
    assert "File too large" in done.stderr.splitlines()[-1]
    assert (tmp_path / out).read_bytes() == OLD
    assert [file.name for file in tmp_path.iterdir()] == [out]


FETCH = """
from chai.zoo import fetch
from chai.zoo.card import Published
fetch.PAUSE = 0
fetch.entry = lambda name: Published(file={name!r}, urls=({url!r},), algorithm="sha256", digest={digest!r}, source="here")
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "kill", "kill -9"])
def test_a_fetch_that_is_ended(tmp_path: Path, how: str) -> None:
    """Ctrl-C leaves nothing; after a kill the next run resumes. The file is there only when it is whole."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    code = FETCH.format(name=NAME, url=server.url(), digest=hashlib.sha256(CONTENT).hexdigest())
    args = ["fetch", "lenet", "--dir", str(tmp_path)]
    try:
        server.cuts = [100_000]
        part = tmp_path / f"{NAME}.part"
        with started(tmp_path, code + HOLD, *args) as process:
            until(lambda: (tmp_path / "second").exists(), "there was no second attempt")
            assert part.stat().st_size == 100_000
            if how == "Ctrl-C":
                interrupted(process, "fetch")
            else:
                process.send_signal(signal.SIGKILL if how == "kill -9" else signal.SIGTERM)
                process.communicate(timeout=HANG)
        left = [] if how == "Ctrl-C" else [part.name, f"{part.name}.json"]
        assert sorted(file.name for file in tmp_path.iterdir()) == sorted([f"{NAME}.lock", *left, "second"])
        (tmp_path / "second").unlink()
        with started(tmp_path, code, *args) as process:
            _, words = process.communicate(timeout=HANG)
        assert process.returncode == 0, words
        assert server.asked("Range")[-1] == (None if how == "Ctrl-C" else "bytes=100000-")
        assert (tmp_path / NAME).read_bytes() == CONTENT
        assert sorted(file.name for file in tmp_path.iterdir()) == [NAME, f"{NAME}.lock"]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


HOLD = """
import time
from pathlib import Path
begun = fetch._Download.begun
def hold(part, url):
    found = begun(part, url)
    if found[0]:  # the second attempt
        Path("second").touch()
        time.sleep(1800)
    return found
fetch._Download.begun = hold
"""
