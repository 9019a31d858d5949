"""Say what it means if this process hangs where none of its threads runs: in an access to a register that never answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# its input ends when the watched step does, or with the process
SCRIPT = """import select, sys
if not select.select([0], [], [], float(sys.argv[1]))[0]:
    print(sys.argv[2], file=sys.stderr)"""


@contextmanager
def watched(seconds: float, words: str) -> Iterator[None]:
    """Have another process print the words on stderr unless the context ends within so many seconds."""
    command = [sys.executable, "-I", "-S", "-c", SCRIPT, str(seconds), words]
    with subprocess.Popen(command, stdin=subprocess.PIPE):  # leaving it closes the input, and waits
        yield
