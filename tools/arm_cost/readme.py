"""Put what chai show prints of GoogLeNet on a PYNQ-Z2 into README.md, after its figures have changed."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from chai.cli import main as chai_command
from chai.errors import UsageError

from .cost import replaced
from .debian import ROOT

PAGE = ROOT / "README.md"
COMMAND = "chai show googlenet --overlay pynq-z2"
LINES = ("speed", "host", "overlap", "picture")  # labels of lines that are of figures
MARKS = "<!-- speed: python -m tools.arm_cost --fit -->", "<!-- end of speed -->"


def update() -> None:
    """Write the figures into the page. Raises UsageError if the command fails, ValueError for a page without the marks."""
    text, content = _printed(), json.loads(_printed("--json"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(updated(page, text, content), encoding="utf-8")


def updated(page: str, text: str, content: dict[str, Any]) -> str:
    """Return a page with these lines of the command's text, and the first figure from its JSON."""
    before, command, rest = page.partition(f"{COMMAND}\n")
    block, end, after = rest.partition("\n```\n\n")
    lines = {line[:8].strip(): line for line in text.splitlines() if line[:8].strip() in LINES}
    kept = [line for line in block.split("\n") if line[:8].strip() not in LINES]
    return replaced(before + command + "\n".join([*kept, *lines.values()]) + end + after, sentence(content), MARKS)


def sentence(content: dict[str, Any]) -> str:
    """Return the first figure of the page: from end to end, beside the overlay's own."""
    low, high = content["host"]["alone"]["images_per_second"]
    slow, fast = content["host"]["alone"]["overlapping"]
    rates = f"{_between(low, high)} images/second from end to end, {_between(slow, fast)} with `net.stream`"
    own = f"{content['modelled_fps']:.1f} on the overlay alone"
    how = "All are modelled, not measured on a board ([how](docs/performance.md#on-a-board))."
    return f"GoogLeNet on a PYNQ-Z2: {rates},\nand {own}. {how}"


def _between(low: float, high: float) -> str:
    return f"{low:.1f} to {high:.1f}" if f"{low:.1f}" != f"{high:.1f}" else f"{low:.1f}"


def _printed(*more: str) -> str:
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = chai_command([*COMMAND.split()[1:], *more])
    if code:
        raise UsageError(f"{COMMAND}: {errors.getvalue()}")
    return out.getvalue()
