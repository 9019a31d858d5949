"""chai evaluate, as users run it: on one worker or several, killed, stopped, and begun again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import chai
from chai import cli
from chai.artifact.save import save
from chai.evaluate import evaluate
from chai.evaluate.workers import dispatch, processes
from chai.kernels.native.library import arithmetic
from chai.util.paths import resource
from tests.conftest import HANG
from tests.evaluate.guarded import FREEZES, KILLS, RAISES, WAITS, guarded, records, stop, stopped, until, waiting

LOOPS = "open('looping', 'w').write(str(os.getpid()))\n        while True: time.sleep(0.01)"
DIGITS = resource("prototxt", "digits_images")
HALF_WAY = {61: WAITS, 65: WAITS}  # of 120 images: two workers with batches of four have done sixty, and no more


def children(pid: int) -> list[int]:
    """Workers that a process has started, as it has other processes too when it has used dask."""
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # of a thread that has just ended
            pids += map(int, task.read_text().split())
    return [child for child in pids if b"chai.evaluate.workers.worker" in command(child)]


def command(pid: int) -> bytes:
    """What a process was started with, if it still is there."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def ended(pid: int) -> bool:
    """Whether a process is gone, or only waits to be asked how it went."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@contextmanager
def started(folder: Path, *args: Any) -> Iterator[subprocess.Popen[str]]:
    """chai evaluate, under way."""
    command = [sys.executable, "-m", "chai", "evaluate", *map(str, args)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Commands in this process replace workers that are stopped after a silent second, not those that are slow as all of
    the machine is, and those that are in an endless loop after one, not those that still load; their custom layer is
    forgotten again."""
    monkeypatch.setattr(processes, "PATIENCE", 1.0)
    lose = processes.Processes._lose

    def judged(self: Any, worker: Any, why: str) -> Any:
        """Lose a worker, or forgive it."""
        pid = worker.process.pid
        looping = (tmp_path / "looping").exists() and (tmp_path / "looping").read_text() == str(pid)
        if ("no sign" in why and not stopped(pid)) or ("longer than" in why and not looping):
            worker.heard = worker.since = processes.monotonic()
            return []
        return lose(self, worker, why)

    monkeypatch.setattr(processes.Processes, "_lose", judged)
    yield
    chai.load_custom(tmp_path / "guard.py").unload()


# -- what it says


def test_columns(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    truth = [f"{p.name} {p.stem[-1]}" for p in sorted(DIGITS.glob("*.png"))]
    (tmp_path / "truth.txt").write_text("\n".join(truth[:20]) + "\n")
    options = ["--images", DIGITS, "--limit", "30", "--truth", "truth.txt", "--device", "emulator", "--device", "null"]
    done = chai_command("evaluate", "digits", *options)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.pop(1) == "output prob: class scores, 10 classes"
    assert lines[1].split() == ["30", "images", "float", "emulator", "null"]
    assert re.match(r"same best class +30/30 \(100\.0 %\) +\d+/30 \([\d.]+ %\)$", lines[2])
    assert re.match(r"  95 % interval +88\.6 to 100\.0 % +[\d.]+ to [\d.]+ %$", lines[3])
    assert re.match(r"KL\(float \|\| it\), nats +\d[\d.]*e-05 +[\d.]+$", lines[4])
    assert re.match(
        r"classifier SQNR, dB +[345]\d\.\d +-?\d\.\d$", lines[5]
    )  # null has codes of zero, whatever they stand for
    assert re.match(r"top-1( +\d+/20 \([\d.]+ %\)){3}$", lines[6])
    assert re.match(r"top-5( +\d+/20 \([\d.]+ %\)){3}$", lines[7])
    assert max(map(len, lines)) <= 80


def test_json(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("evaluate", "digits", "--images", DIGITS, "--limit", "30", "--json", "--batch", "7")
    content = json.loads(done.stdout)
    assert content["schema"] == "chai.evaluate/3" and content["threshold"] is None
    assert content["output"] == {
        "blob": "prob", "kind": "scores", "logits": "classifier", "decision": "softmax", "classes": 10, "first_class": 0
    }  # fmt: skip
    assert (content["images"], content["known"], content["float"], content["failed"]) == (30, 0, {}, [])
    assert content["devices"].keys() == {"emulator"}
    side = content["devices"]["emulator"]
    assert (side["agree"], side["agreement"]) == (30, 1.0) and side["logits_sqnr_db"] > 30
    assert "30 images" not in done.stderr and "digits-inception brings no formats" in done.stderr


def test_the_truth_from_folders(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    for i, file in enumerate(sorted(DIGITS.glob("*.png"))[:6]):
        folder = tmp_path / "set" / str(i % 2)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(file.read_bytes())
    content = json.loads(chai_command("evaluate", "digits", "--images", "set", "--json").stdout)
    assert (content["images"], content["known"]) == (6, 6)
    assert content["float"].keys() == {"top1", "top5"} <= content["devices"]["emulator"].keys()


def test_images_beside_folders_count(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """In whichever folder they are; a folder in which nothing but folders are has none of its own."""
    for i, file in enumerate(sorted(DIGITS.glob("*.png"))[:6]):
        folder = tmp_path / "set" / ("" if i < 3 else "more")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(file.read_bytes())
    (tmp_path / "set" / "notes.txt").write_text("which pictures these are")
    content = json.loads(chai_command("evaluate", "digits", "--images", "set", "--json").stdout)
    assert content["images"] == 6
    for file in (tmp_path / "set").glob("*.png"):
        file.unlink()
    content = json.loads(chai_command("evaluate", "digits", "--images", "set", "--json").stdout)
    assert content["images"] == 3


def test_against_what_a_network_was_made_from(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("quantize", "digits", "--calibration", DIGITS, "--limit", "16", "-o", "q.prototxt", "-q")
    assert done.returncode == 0, done.stderr
    source = [resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")]
    options = ["--images", DIGITS, "--limit", "16", "--json", "--reference", *source]
    done = chai_command("evaluate", "q.prototxt", "q.caffemodel", *options)
    side = json.loads(done.stdout)["devices"]["emulator"]
    assert side["agree"] == 16 and 0 < side["kl"] < 0.01
    assert done.stderr == ""  # it brings its formats


def test_the_limit_counts_images_not_files(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    np.save(tmp_path / "a.npy", np.zeros((5, 1, 8, 8), np.float32))
    np.save(tmp_path / "b.npy", np.ones((1, 8, 8), np.uint8))
    np.save(tmp_path / "c.npy", np.ones((4, 1, 8, 8), np.float64))
    content = json.loads(chai_command("evaluate", "digits", "--images", tmp_path, "--limit", "8", "--json").stdout)
    assert content["images"] == 8


# -- on several workers


def test_the_numbers_do_not_depend_on_how_many_workers_there_are(chai_command) -> None:  # type: ignore[no-untyped-def]
    options = ["--images", DIGITS, "--limit", "90", "--json", "-q"]
    reports = [chai_command("evaluate", "digits", *options, "--jobs", jobs).stdout for jobs in "123"]
    assert json.loads(reports[0])["images"] == 90
    assert reports[0] == reports[1] == reports[2]


def test_an_image_that_cannot_be_read_changes_no_other(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    photos = tmp_path / "photos"
    photos.mkdir()
    for file in sorted(DIGITS.glob("*.png"))[:20]:
        (photos / file.name).write_bytes(file.read_bytes())
    chai_command("evaluate", "digits", "--images", photos, "--journal", "good.jsonl")
    bad = sorted(photos.iterdir())[11]
    bad.write_bytes(b"no image")
    done = chai_command("evaluate", "digits", "--images", photos, "--journal", "bad.jsonl", "--json")
    assert done.returncode == 65
    assert f"error: {bad}: this is no readable image" in done.stderr
    (failed,) = json.loads(done.stdout)["failed"]
    assert failed["file"] == str(bad) and failed["error"].startswith("this is no readable image")
    expected = records(tmp_path / "good.jsonl")
    assert expected.pop(11) and records(tmp_path / "bad.jsonl") == expected


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        (KILLS, "its worker ended by SIGKILL"),
        (RAISES, "this one I do not like"),
    ],
)
def test_an_image_that_no_worker_survives_is_reported(chai_command, tmp_path: Path, mark: float, words: str) -> None:  # type: ignore[no-untyped-def]
    options = ["--batch", "4", "--jobs", "2", "--json"]
    chai_command("evaluate", *guarded(tmp_path, 30), *options, "--journal", "good.jsonl")
    done = chai_command("evaluate", *guarded(tmp_path, 30, {17: mark}), *options, "--journal", "bad.jsonl")
    assert done.returncode == 65, done.stderr
    (failed,) = json.loads(done.stdout)["failed"]
    assert failed["file"].endswith("images.npy[17]") and words in failed["error"]
    expected = records(tmp_path / "good.jsonl")
    assert expected.pop(17) and records(tmp_path / "bad.jsonl") == expected


def test_images_that_stop_their_worker_are_reported(tmp_path: Path, impatient: None, capsys) -> None:  # type: ignore[no-untyped-def]
    options = ["--batch", "4", "--jobs", "2", "--json"]
    assert cli.main(["evaluate", *map(str, guarded(tmp_path, 14, {9: FREEZES})), *options]) == 65
    content = json.loads(capsys.readouterr().out)
    (failed,) = content["failed"]
    assert failed["error"] == "its worker gave no sign for 1 s" and content["images"] == 13
    assert children(os.getpid()) == []


def test_an_image_that_takes_for_ever_is_reported(  # type: ignore[no-untyped-def]
    tmp_path: Path, impatient: None, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr(dispatch, "TRIES", 1)
    args = guarded(tmp_path, 12, {10: KILLS})  # the formats are from the first 8
    (tmp_path / "guard.py").write_text((tmp_path / "guard.py").read_text().replace("os.kill(", LOOPS + "  #", 1))
    monkeypatch.chdir(tmp_path)  # where the layer tells
    assert cli.main(["evaluate", *map(str, args), "--timeout", "1", "--batch", "3", "--jobs", "1", "--json"]) == 65
    content = json.loads(capsys.readouterr().out)
    assert [f["error"] for f in content["failed"]] == ["it takes longer than 1 s"] and content["images"] == 11


def test_workers_killed_and_stopped_half_way(tmp_path: Path, impatient: None, capsys) -> None:  # type: ignore[no-untyped-def]
    args = [*map(str, guarded(tmp_path, 100, dict.fromkeys((37, 61), WAITS))), "--json", "--batch", "4"]
    journal, held = tmp_path / "journal.jsonl", list[int]()

    def harm() -> None:
        os.kill(waiting(tmp_path, 37), signal.SIGKILL)
        held.append(waiting(tmp_path, 61))
        stop(held[0])
        (tmp_path / "go").touch()

    culprit = Thread(target=harm, daemon=True)
    culprit.start()
    assert cli.main(["evaluate", *args, "--jobs", "2", "--journal", str(journal)]) == 0
    culprit.join()
    harmed = capsys.readouterr()
    assert "its worker ended by SIGKILL; the batch is run again" in harmed.err
    assert "its worker gave no sign for 1 s; the batch is run again" in harmed.err
    assert ended(held[0])
    assert sorted(records(journal)) == list(range(100))
    assert cli.main(["evaluate", *args, "--jobs", "1"]) == 0
    assert capsys.readouterr().out == harmed.out


# -- begun again


def test_resumed_after_a_kill(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    args = [*guarded(tmp_path, 120, HALF_WAY), "--batch", "4", "--json", "--jobs", "2"]
    journal = tmp_path / "journal.jsonl"
    with started(tmp_path, *args, "--journal", journal) as process:
        workers = [waiting(tmp_path, image) for image in HALF_WAY]
        process.kill()
        process.wait()
    assert len({*workers}) == 2
    until(lambda: all(map(ended, workers)), "workers outlive the one that started them")
    (tmp_path / "go").touch()
    before = records_of_whole_lines(journal)
    with open(journal, "ab") as file:
        file.write(b'{"image": 119, "flo')
    done = chai_command("evaluate", *args, "--journal", journal)
    assert done.returncode == 0, done.stderr
    assert f"{journal}: 60 of 120 images are done" in done.stderr
    assert len(before) == 60 and sorted(records(journal)) == list(range(120))
    assert done.stdout == chai_command("evaluate", *args).stdout
    again = chai_command("evaluate", *args, "--journal", journal)
    assert again.stdout == done.stdout and "120 of 120 images are done" in again.stderr


def records_of_whole_lines(journal: Path) -> list[str]:
    """Its lines but the first; a torn one is none."""
    return [line for line in journal.read_text().splitlines(keepends=True)[1:] if line.endswith("\n")]


def test_a_run_is_not_resumed_with_other_kernels(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Half of the images in numpy and half in C would give an average that neither gives."""
    options = ["evaluate", "digits", "--images", DIGITS, "--limit", "12", "--json", "--batch", "3", "--jobs", "1"]
    whole = chai_command(*options, "--journal", "j.jsonl", CHAI_KERNELS="sgemm")
    assert whole.returncode == 0, whole.stderr
    journal = tmp_path / "j.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:7]))
    other = chai_command(*options, "--journal", "j.jsonl")
    if arithmetic() == "numpy":  # there are no others
        assert other.stdout == whole.stdout
    else:
        assert other.returncode == 2
        assert "journal j.jsonl is of another run: its kernels differ" in other.stderr
        assert chai_command(*options).stdout != whole.stdout, "the last digits are the same: there is nothing to refuse"
        resumed = chai_command(*options, "--journal", "j.jsonl", CHAI_KERNELS="sgemm")
        assert "6 of 12 images are done" in resumed.stderr
        assert resumed.stdout == whole.stdout


def test_ctrl_c_leaves_the_journal_and_no_process(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    args = [*guarded(tmp_path, 120, HALF_WAY), "--batch", "4", "--jobs", "2", "--journal", journal]
    with started(tmp_path, *args) as process:
        workers = [waiting(tmp_path, image) for image in HALF_WAY]
        os.killpg(process.pid, signal.SIGINT)
        _, words = process.communicate(timeout=HANG)
    assert process.returncode == 130 and words.splitlines()[-1] == "interrupted" and "Traceback" not in words
    assert all(map(ended, workers))
    assert len(records(journal)) == 60


def test_the_journal_of_another_run_is_refused(chai_command, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    options = ["--images", DIGITS, "--json", "--journal", "j.jsonl"]
    assert chai_command("evaluate", "digits", *options, "--limit", "9").returncode == 0
    other = chai_command("evaluate", "digits", *options, "--limit", "10", "--scheme", "DynamicFixed")
    assert other.returncode == 2
    assert "journal j.jsonl is of another run: its images, options differ" in other.stderr
    assert "start this one over with --restart" in other.stderr
    assert json.loads((tmp_path / "j.jsonl").read_text().splitlines()[0])["version of chai"] == chai.__version__
    anew = chai_command("evaluate", "digits", *options, "--limit", "10", "--restart")
    assert anew.returncode == 0 and sorted(records(tmp_path / "j.jsonl")) == list(range(10))


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--device", "float"], 2, "--device float against float says nothing"),
        (["--device", "emulatr"], 69, "there is no device 'emulatr'"),
        (["--device", "emulator", "--device", "pynq", "--jobs", "2"], 2, "device pynq serves one process at a time"),
        (["--jobs", "0"], 2, "argument --jobs: '0': expected a number of at least 1"),
        (["--timeout", "0"], 2, "--timeout 0: expected more than 0 seconds"),
        (["--jobs", "2", "--scheduler", "tcp://127.0.0.1:1"], 2, "--jobs does nothing with --scheduler"),
        (["--restart"], 2, "--restart does nothing without a journal"),
        (["--journal", "bad.png"], 65, "this is no journal of chai"),
        (["--journal", "bad.png", "--restart"], 65, "this is no journal of chai"),
        (["--channels", "BGR"], 2, "a BGR image has 3 channels"),
        (["--images", "bad.png"], 65, "bad.png: none of the images that formats are to be taken from can be read"),
        (["--images", "bad.png", "--calibration", DIGITS], 65, "bad.png: none of the images can be read"),
    ],
)
def test_refusals(chai_command, tmp_path: Path, args: list[str], code: int, words: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "bad.png").write_bytes(b"no image")
    done = chai_command("evaluate", "digits", "--images", DIGITS, "--limit", "8", *args)
    assert done.returncode == code and words in done.stderr, done.stderr
    assert (tmp_path / "bad.png").read_bytes() == b"no image"


# -- a compiled network


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "digits.chai"
    images = np.random.default_rng(2).random((4, 1, 8, 8)).astype(np.float32)
    net = chai.Net("digits", calibrate=images)
    save(net, path, net.card)
    return path


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    path = tmp_path / "truth.txt"
    path.write_text("".join(f"{p.name} {p.stem[-1]}\n" for p in sorted(DIGITS.glob("*.png"))))
    return path


def evaluated(chai_command: Any, *options: Any) -> dict[str, Any]:
    done = chai_command("evaluate", *options, "--images", DIGITS, "--limit", "30", "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_a_compiled_network_alone(chai_command, compiled: Path, truth: Path) -> None:  # type: ignore[no-untyped-def]
    report = evaluated(chai_command, compiled, "--truth", truth)
    net, images = chai.Net(compiled), sorted(DIGITS.glob("*.png"))[:30]
    right = sum(int(net.forward(net.preprocess([image]))["prob"].argmax()) == int(image.stem[-1]) for image in images)
    assert (report["reference"], report["float"]) == ("emulator", None)
    assert report["devices"]["emulator"].keys() == {"top1", "top5"}
    assert report["devices"]["emulator"]["top1"] == right > 20
    shown = chai_command("evaluate", compiled, "--images", DIGITS, "--limit", "30", "--truth", truth)
    lines = shown.stdout.splitlines()
    assert lines[2].split() == ["30", "images", "emulator"]
    assert [line.split()[0] for line in lines[3:]] == ["top-1", "top-5"]


def test_a_compiled_network_against_what_it_was_made_of(chai_command, compiled: Path, truth: Path) -> None:  # type: ignore[no-untyped-def]
    """The same numbers as for the prototxt with the same formats."""
    reference = ["--reference", resource("prototxt", "digits.prototxt"), resource("prototxt", "digits.caffemodel")]
    side = evaluated(chai_command, compiled, *reference, "--truth", truth)["devices"]["emulator"]
    net = chai.Net("digits", keep=["classifier"])
    net.calibrate(np.random.default_rng(2).random((4, 1, 8, 8)).astype(np.float32))
    exact = chai.Net("digits", device="float", keep=["classifier"])
    inputs = [({"data": net.preprocess([image])}, [int(image.stem[-1])]) for image in sorted(DIGITS.glob("*.png"))[:30]]
    _, wanted = evaluate(exact, net, inputs)
    assert (side["agree"], side["top1"]) == (wanted.agree, wanted.hits[0])
    assert side["kl"] == pytest.approx(wanted.kl / 30, rel=1e-3)
    assert side["logits_sqnr_db"] == pytest.approx(wanted.sqnr / 30, rel=1e-3)


def test_a_compiled_network_on_two_devices(chai_command, compiled: Path) -> None:  # type: ignore[no-untyped-def]
    """The first is what the second is compared with."""
    report = evaluated(chai_command, compiled, "--device", "emulator", "--device", "null", "--jobs", "2")
    assert report["reference"] == "emulator" and list(report["devices"]) == ["emulator", "null"]
    assert report["devices"]["emulator"] == {}  # no answer is known
    assert report["devices"]["null"]["agree"] < 10 and report["devices"]["null"]["kl"] > 1
    same = evaluated(chai_command, compiled, "--device", "null", "--device", "emulator")["devices"]["emulator"]
    assert same["agree"] == report["devices"]["null"]["agree"]


def test_a_journal_of_a_compiled_network(chai_command, compiled: Path, truth: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    options = compiled, "--truth", truth, "--journal", tmp_path / "j.jsonl"
    first = evaluated(chai_command, *options)
    assert evaluated(chai_command, *options) == first
    other = tmp_path / "digits.chai"
    net = chai.Net("digits", calibrate=np.ones((1, 1, 8, 8), np.float32))
    save(net, other, net.card)
    done = chai_command("evaluate", other, *options[1:], "--images", DIGITS, "--limit", "30")
    assert done.returncode != 0 and "is of another run" in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], "there is nothing to compare with"),
        (["--calibration", DIGITS], "--calibration does nothing for "),
        (["--device", "float"], "says nothing"),
        (["--reference", "other.chai", "none"], "other.chai is compiled, expected a prototxt"),
        (["--bits", "6", "--device", "emulator", "--device", "null"], "--bits does nothing for "),
    ],
)
def test_refusals_of_a_compiled_network(chai_command, compiled: Path, args: list[str], words: str) -> None:  # type: ignore[no-untyped-def]
    done = chai_command("evaluate", compiled, "--images", DIGITS, "--limit", "8", *args)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize(("option", "line"), [("--truth", "other.png 3\n"), ("--labels", "n01440764 fish\n")])
def test_answers_for_other_images_are_refused_before_the_work(
    chai_command, tmp_path: Path, option: str, line: str
) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "truth.txt").write_text(line)
    done = chai_command("evaluate", "digits", "--images", DIGITS, "--limit", "2", "--jobs", "1", option, "truth.txt")
    assert done.returncode == 2 and f"{option} truth.txt has no answer for any of the 2 images" in done.stderr


@pytest.mark.parametrize(("names", "first"), [(["a.png", "a.png"], "a.png"), (["b.npy"], "b.npy[0]")])
def test_names_of_images(chai_command, tmp_path: Path, names: list[str], first: str) -> None:  # type: ignore[no-untyped-def]
    """A picture that is there twice has its name; an item of an array has its number, even if it is the only one that runs."""
    (tmp_path / "a.png").write_bytes(next(DIGITS.glob("*.png")).read_bytes())
    np.save(tmp_path / "b.npy", np.zeros((3, 1, 8, 8), np.uint8))
    (tmp_path / "truth.txt").write_text("other.png 3\n")
    done = chai_command("evaluate", "digits", "--images", *names, "--limit", str(len(names)), "--truth", "truth.txt")
    assert done.returncode == 2 and f"hint: the first is {first}\n" in done.stderr, done.stderr
