"""Commands in processes of their own, forked from one that has imported what they need: starting Python is most of the work
of a small command. Run as a program it is that process: a line of JSON in, a command; a line out, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path


class Forked:
    """Runs commands as ``python -m chai`` does, one after another."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path!r}; from tests.cli.forked import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )

    def run(self, args: Sequence[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Return exit code, stdout and stderr of ``chai ARGS``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            names = [str(Path(folder, name)) for name in ("out", "err")]
            job = {"args": list(args), "cwd": str(cwd), "env": dict(env), "names": names}
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            code = int(self.process.stdout.readline())
            out, err = (Path(name).read_text() for name in names)
        return subprocess.CompletedProcess(args, code, out, err)

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def serve() -> None:
    """Import what commands import; then a fork for each."""
    import rich.console
    import rich.table  # noqa: F401

    import chai.artifact.save
    import chai.artifact.source
    import chai.evaluate
    import chai.evaluate.compare
    import chai.net
    import chai.offload.planning
    import chai.quantizer  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            _command(**job)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _command(args: list[str], cwd: str, env: dict[str, str], names: list[str]) -> None:
    """Be the command, and end."""
    import atexit

    from chai.__main__ import main

    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.path.insert(0, cwd)  # as -m does
    sys.argv = ["chai", *args]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in enumerate(names, 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    code: int | str | None = 70
    try:
        main()
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)
