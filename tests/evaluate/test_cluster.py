"""chai evaluate on a dask cluster of two workers: killed, stopped, with other files, with images that kill."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from time import monotonic
from typing import Any

import pytest

import chai
from chai import cli
from chai.evaluate.workers import cluster as crew
from chai.evaluate.workers.job import Job, answer
from chai.util.paths import resource
from tests.conftest import HANG, ROOT

from .guarded import KILLS, WAITS, guarded, records, stop, stopped, until, waiting

distributed = pytest.importorskip(
    "distributed", reason="dask.distributed is not installed: pip install -e '.[cluster]'"
)
DIGITS = ["digits", "--images", str(resource("prototxt", "digits_images")), "--limit", "24", "--json"]


pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # dask's own, see forgotten


@contextmanager
def cluster(**config: Any) -> Iterator[Any]:
    """Two workers in processes of their own; stopped ones go on when it ends."""
    import dask

    with (
        dask.config.set(
            {
                "distributed.comm.timeouts": {"connect": f"{HANG} s", "tcp": f"{HANG} s"},
                "distributed.deploy.lost-worker-timeout": f"{HANG} s",  # else workers that restart slowly are given up
                **{f"distributed.scheduler.{k.replace('_', '-')}": v for k, v in config.items()},
            }
        ),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
    ):
        try:
            yield local
        finally:
            for nanny in local.workers.values():
                if nanny.pid is not None:
                    with suppress(ProcessLookupError):  # it has been killed, and the nanny is about to see it
                        os.kill(nanny.pid, signal.SIGCONT)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are taken for frozen after two silent seconds: others then run their batches too."""
    monkeypatch.setattr(crew, "PATIENCE", 2.0)
    monkeypatch.setattr(crew, "LOOK", 0.5)


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be slow: reaching the scheduler may take long."""
    monkeypatch.setattr(crew, "CONNECT", HANG)


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path) -> Iterator[None]:
    """The custom layer is forgotten again; what dask has left goes here, where its complaints are no other test's."""
    yield
    gc.collect()
    if (tmp_path / "guard.py").exists():
        chai.load_custom(tmp_path / "guard.py").unload()


def pids(dask_cluster: Any) -> list[int]:
    return [nanny.pid for nanny in dask_cluster.workers.values() if nanny.pid is not None]


# dask's default, under which it waits for a stopped worker; a short one
@pytest.mark.parametrize("ttl", ["5 minutes", pytest.param("4s", marks=pytest.mark.slow)])
def test_one_killed_and_one_stopped_half_way(tmp_path: Path, impatient: None, capsys: Any, ttl: str) -> None:
    args = ["evaluate", *map(str, guarded(tmp_path, 100, dict.fromkeys((37, 61), WAITS))), "--json", "--batch", "4"]
    journal, held = tmp_path / "journal.jsonl", list[int]()

    def harm() -> None:
        os.kill(waiting(tmp_path, 37), signal.SIGKILL)
        held.append(waiting(tmp_path, 61))
        stop(held[0])
        (tmp_path / "go").touch()

    with cluster(worker_ttl=ttl) as dask_cluster:
        culprit = Thread(target=harm, daemon=True)
        culprit.start()
        assert cli.main([*args, "--scheduler", dask_cluster.scheduler_address, "--journal", str(journal)]) == 0
        culprit.join()
        if ttl != "4s":  # with that, dask has ended it
            assert stopped(held[0])
    harmed = capsys.readouterr().out
    assert sorted(records(journal)) == list(range(100))
    assert cli.main([*args, "--jobs", "1"]) == 0
    assert capsys.readouterr().out == harmed


@pytest.mark.slow
def test_a_result_that_stays_at_a_stopped_worker_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A worker may stop between the end of a batch and its transfer; dask then waits for its worker-ttl."""
    result, refused = distributed.Future.result, list[Any]()

    def first_fails(future: Any, timeout: float | None = None) -> Any:
        assert timeout is not None
        if not refused:
            refused.append(future.key)
            raise asyncio.TimeoutError
        return result(future)

    monkeypatch.setattr(distributed.Future, "result", first_fails)
    args = ["evaluate", *map(str, guarded(tmp_path, 14)), "--json", "--batch", "4"]
    with cluster() as dask_cluster:
        assert cli.main([*args, "--scheduler", dask_cluster.scheduler_address]) == 0
    assert len(refused) == 1
    shared = capsys.readouterr().out
    assert cli.main([*args, "--jobs", "1"]) == 0
    assert capsys.readouterr().out == shared


@pytest.mark.slow
def test_an_image_that_kills_is_reported(tmp_path: Path, capsys: Any) -> None:
    args = ["--json", "--batch", "4", "--journal"]
    with cluster(allowed_failures=0) as dask_cluster:
        code = cli.main(
            ["evaluate", *map(str, guarded(tmp_path, 14, {9: KILLS})), *args, str(tmp_path / "bad.jsonl")]
            + ["--scheduler", dask_cluster.scheduler_address]
        )
    assert code == 65
    (failed,) = json.loads(capsys.readouterr().out)["failed"]
    assert failed["file"].endswith("images.npy[9]") and failed["error"] == "it killed every worker that tried it"
    assert cli.main(["evaluate", *map(str, guarded(tmp_path, 14)), *args, str(tmp_path / "good.jsonl")]) == 0
    expected = records(tmp_path / "good.jsonl")
    assert expected.pop(9) and records(tmp_path / "bad.jsonl") == expected


def test_workers_let_go_when_it_is_over(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(crew, "PARTING", HANG)  # they answer, if only slowly
    with cluster() as dask_cluster:
        assert cli.main(["evaluate", *DIGITS, "--scheduler", dask_cluster.scheduler_address]) == 0
        with distributed.Client(dask_cluster.scheduler_address, set_as_default=False) as client:
            kept = "len(__import__('chai.evaluate.workers.job').evaluate.workers.job._bench)"
            until(lambda: not any(client.run(eval, kept).values()), "a worker has networks open still")


LIES: list[tuple[dict[str, Any], str]] = [
    ({"digests": {"network weights": "0" * 64}}, "not the same network weights as here (sha256 "),
    ({"version": "0.0.9"}, f"it has chai {chai.__version__}, expected 0.0.9"),
    ({"sample": "/photos/0.png"}, "No such file or directory: '/photos/0.png'"),
    ({"network": ("elsewhere.prototxt", None)}, "there is no file 'elsewhere.prototxt'"),
]


def check_refusals(monkeypatch: pytest.MonkeyPatch, capsys: Any, *where: str) -> None:
    """Each job tells something that is not so at the workers."""
    true = Job.to_json
    for lie, words in LIES:

        def told(job: Job, lie: dict[str, Any] = lie) -> dict[str, Any]:
            content = true(job)
            return {**content, **lie, "digests": {**content["digests"], **lie.get("digests", {})}}

        monkeypatch.setattr(Job, "to_json", told)
        code = cli.main(["evaluate", *DIGITS, *where])
        error = capsys.readouterr().err
        assert code == 2 and "error: worker on " in error and words in error


def test_workers_that_have_something_else_refuse(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    check_refusals(monkeypatch, capsys, "--jobs", "2")


def test_workers_of_a_cluster_that_have_something_else_refuse(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with cluster() as dask_cluster:  # one for all, since a refusal ends no worker
        check_refusals(monkeypatch, capsys, "--scheduler", dask_cluster.scheduler_address)


@pytest.mark.slow
def test_when_nothing_comes_back_it_says_so(impatient: None, capsys: Any) -> None:
    with cluster() as dask_cluster:
        for pid in pids(dask_cluster):
            os.kill(pid, signal.SIGSTOP)
        assert cli.main(["evaluate", *DIGITS, "--scheduler", dask_cluster.scheduler_address, "--timeout", "2"]) == 69
    assert f"nothing has come back from {dask_cluster.scheduler_address} for 2 s: " in capsys.readouterr().err


@pytest.mark.slow
def test_the_last_worker_does_all_when_the_other_has_stopped(tmp_path: Path, impatient: None, capsys: Any) -> None:
    args = ["evaluate", *map(str, guarded(tmp_path, 30, pause=0.01)), "--json", "--batch", "2"]
    with cluster() as dask_cluster:
        os.kill(pids(dask_cluster)[0], signal.SIGSTOP)
        assert cli.main([*args, "--scheduler", dask_cluster.scheduler_address]) == 0
    alone = capsys.readouterr().out
    assert cli.main([*args, "--jobs", "1"]) == 0
    assert capsys.readouterr().out == alone


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(crew, "CONNECT", 1)
    assert cli.main(["evaluate", *DIGITS, "--scheduler", "tcp://127.0.0.1:1"]) == 69
    assert "no scheduler answers at tcp://127.0.0.1:1: " in capsys.readouterr().err


def test_a_scheduler_that_dies(tmp_path: Path) -> None:
    """chai's message alone is printed, without a traceback of dask."""
    file = tmp_path / "scheduler.json"
    here = {**os.environ, "PYTHONPATH": str(ROOT)}
    dask = [sys.executable, "-m", "dask"]
    held = [subprocess.Popen([*dask, "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)])]
    try:
        until(lambda: file.exists() and file.read_text(), "no scheduler")
        address = json.loads(file.read_text())["address"]
        worker = ["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        held.append(subprocess.Popen([*dask, *worker, "--local-directory", str(tmp_path)], env=here))
        args = [*map(str, guarded(tmp_path, 6, {3: WAITS})), "--json", "--batch", "2", "--scheduler", address]
        chai = [sys.executable, "-m", "chai", "evaluate", *args]
        held.append(subprocess.Popen(chai, env=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        waiting(tmp_path, 3)
        held[0].kill()
        out, errors = held[-1].communicate(timeout=HANG)
    finally:
        for process in held:
            process.kill()
            process.wait()
    assert held[-1].returncode == 69 and not out, errors
    said = [line for line in errors.splitlines() if not line.startswith("warning: ")]
    assert said == [f"error: the scheduler {address} is gone", "hint: a --journal keeps what is done"]


def test_without_dask(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert cli.main(["evaluate", *DIGITS, "--scheduler", "tcp://192.0.2.1:1"]) == 2
    error = capsys.readouterr().err
    assert "--scheduler needs dask.distributed" in error and 'pip install "chai-fpga[cluster]"' in error
    assert "warning: dask runs what it is sent" in error


def test_only_names_and_plain_values_travel(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    sent: list[Any] = []
    true = Job.to_json

    def told(job: Job) -> dict[str, Any]:
        sent.append(true(job))
        return dict(sent[-1])

    monkeypatch.setattr(Job, "to_json", told)
    assert cli.main(["evaluate", *DIGITS, "--jobs", "1"]) == 0
    assert json.loads(json.dumps(sent[-1])).keys() == sent[-1].keys()
    assert len(pickle.dumps(answer)) < 64 and b"chai.evaluate.workers.job" in pickle.dumps(answer)


def test_a_result_that_is_lost_with_its_worker_is_waited_for_again() -> None:
    """dask says that it is done, then that it is pending: its worker died before the result was fetched."""

    class Future:
        key, status = "one", "pending"

        def __init__(self) -> None:
            self.callbacks: list[Any] = []

        def add_done_callback(self, call: Any) -> None:
            self.callbacks.append(call)

        def result(self, timeout: float) -> dict[str, Any]:
            return {"answers": 1}

    future, part = Future(), ((0, "a.png", None),)
    waiting = object.__new__(crew.Cluster)
    waiting.__dict__ |= {"out": {future: part}, "_done": Queue(), "_seen": (["w"], set()), "_moved": set()}
    waiting.__dict__ |= {"_heard": monotonic(), "timeout": HANG, "address": "tcp://here", "job": {}}
    waiting._done.put(future)
    assert waiting.wait() == [] and waiting.out == {future: part}
    future.status = "finished"
    (again,) = future.callbacks
    again(future)
    assert waiting.wait() == [(part, {"answers": 1})] and not waiting.out
