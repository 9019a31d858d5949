"""Print results to stdout and everything else to stderr."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from shutil import get_terminal_size
from textwrap import indent, wrap
from time import monotonic
from typing import Any, ClassVar, TypeVar

from .. import __version__
from ..env import env
from ..errors import ChaiError, DeviceError, FetchError, UsageError
from ..text import encodable, in_ascii, tell, visible
from ..util.files import in_its_place, obstacle
from ..util.html import COLOURS
from ..util.log import show_with
from ..util.sharing import Mutex
from ..util.table import Table, filled, fit, plain, quantity, whole_width

T = TypeVar("T")
WIDTH = 80  # of sentences and charts
ENGINE_STYLE = {engine: COLOURS[engine] for engine in ("fpga", "custom")}  # the host has the terminal's own colour


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{'note' if record.levelno <= logging.INFO else record.levelname.lower()}: {super().format(record)}"


def start_logging(verbose: bool, quiet: bool = False) -> None:
    """Log warnings of chai to stderr, with --verbose or CHAI_DEBUG what it loads too; show how far long work is."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    logger = logging.getLogger("chai")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO if env().debug or verbose else logging.WARNING)
    show_with(None if quiet else meter)


def report(error: Exception) -> int:
    """Print an error with its place and its hint, or a fault of chai's own; return the exit code for its kind."""
    if isinstance(error, FileNotFoundError):  # which was named wrong
        error = UsageError(f"there is no file {str(error.filename)!r}", hint=in_its_place(Path(error.filename)))
    if isinstance(error, ChaiError):
        say(f"error: {error.headline}")
        if error.excerpt:
            say(*error.excerpt.split("\n"))
        if error.hint:
            say(f"hint: {error.hint}")
        codes = {UsageError: 2, DeviceError: 69, FetchError: 74}
        return next((code for kind, code in codes.items() if isinstance(error, kind)), 65)
    if isinstance(error, (MemoryError, RecursionError)):
        say(f"error: out of {'memory' if isinstance(error, MemoryError) else 'stack'}")
        return 70
    if isinstance(error.__context__, KeyboardInterrupt):  # from a cleanup, as of a ZipFile with an open entry
        raise error.__context__ from None
    if env().debug:
        say(*traceback.format_exc().splitlines())
    say(f"error: a fault in chai: {type(error).__name__}: {error}")
    say("hint: CHAI_DEBUG=1 shows where; please report it with the prototxt")
    return 70


def result(*lines: str) -> None:
    """Print lines of a result to stdout."""
    tell(sys.stdout, *lines)


def sentences(*lines: str) -> None:
    """Print sentences to stdout in lines of WIDTH columns; a name is never broken."""
    for line in map(visible, lines):
        result(*wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def say(*lines: str) -> None:
    """Print messages to stderr."""
    tell(sys.stderr, *lines)


def file(text: str, folder: bool = False, suffix: str = "") -> Path:
    """Return the path of a file to write, with ``folder`` also of one. Raises UsageError now if it could not be written later.

    ``suffix``  the ending of its name, if others would belie what is written
    """
    path = Path(text)
    if reason := obstacle(path, folder):
        missing = not path.parent.is_dir()
        hint = f"mkdir -p {path.parent}" if missing else "name a file in a folder of yours"
        raise UsageError(f"cannot write {text}: {reason}", hint=hint)
    if suffix and path.suffix.lower() != suffix:
        raise UsageError(
            f"cannot write {text}: expected a name that ends in {suffix}", hint=f"name it {path.with_suffix(suffix)}"
        )
    return path


def folder(text: str) -> Path:
    """Return the path of a folder to write into, which may be made later. Raises UsageError if something else is there."""
    path = Path(text)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{text} is a file, expected a folder", hint="name another")
    return path


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], align: str, optional: Sequence[str] = (), only_piped: int = 0
) -> None:
    """Print a table: with colours on a terminal; plain, complete and ASCII anywhere else.

    ``optional``    columns that are left out, first to last, where a terminal is too narrow for all; a line says so
    ``only_piped``  how many of the last columns no terminal gets
    """
    if not on_terminal():
        cells = [[*map(in_ascii, row)] for row in (head, *rows)]
        result(*plain(cells[0], cells[1:], align).split("\n"))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    last = len(head) - only_piped
    rows = [[encodable(visible(cell), sys.stdout) for cell in row[:last]] for row in rows]
    whole = Table(head[:last], rows, align[:last])
    shown, left_out = fit(whole, terminal_width(), optional, cell_len)
    if optional and whole_width(shown, cell_len) > terminal_width():
        for first, *others in shown.rows:  # a name has a line for itself rather than be torn
            named = [f"{head} {cell}" for head, cell in zip(shown.head[1:], others) if cell]
            result(first, *(filled(" ", named, terminal_width(), "  ", commas=0) if named else ()))
    else:
        grid = Grid(box=None, pad_edge=False, header_style="bold")
        for name, side in zip(shown.head, shown.align):
            grid.add_column(name, justify="left" if side == "l" else "right", no_wrap=side == "r", overflow="fold")
        for row in shown.rows:
            grid.add_row(*(Text(cell, style=ENGINE_STYLE.get(cell.rstrip("?"), "")) for cell in row))
        Console(width=terminal_width()).print(grid)
    if left_out:
        result(f"left out on {terminal_width()} columns: {', '.join(left_out)} (a pipe and --json have all)")


def on_terminal() -> bool:
    """Return whether results go to a terminal."""
    return sys.stdout.isatty()


def terminal_width() -> int:
    """Return the columns of the terminal; COLUMNS goes first."""
    return get_terminal_size().columns


def listed(label: str, text: str, items: Sequence[str] = ()) -> None:
    """Print a line that begins with a label, and items with commas between them.

    A terminal gets lines of its width, indented below the first; no word of the text and no item is torn.
    """
    if not on_terminal():
        result(in_ascii(" ".join(filter(None, [f"{label:<8}", text, ", ".join(items)]))))
        return
    words = [encodable(visible(word), sys.stdout) for word in text.split()]
    names = [encodable(visible(item), sys.stdout) for item in items]
    result(*filled(f"{label:<8}", [*words, *names], terminal_width(), " " * 9, commas=len(words)))


@dataclass(frozen=True)
class Schema:
    """Base of the objects that ``--json`` prints: a dataclass in the file of each command.

    ``schema`` is name and version. Removing or renaming a key, or changing its meaning, needs a new version; adding one does
    not. Every key is always present; its value is null if it is unknown or does not apply.
    """

    schema: ClassVar[str]


def as_json(content: Schema) -> None:
    """Print one JSON object, marked with its schema and chai's version.

    JSON has no NaN: numbers that are not finite become null.
    """
    result(*_json(plain_values(content)).split("\n"))


class Growing:
    """Prints a JSON object with a list of results: each goes out as it comes, all other values after the last.

    Nothing is printed before the first one, so that an error before it leaves no half of an object.
    """

    def __init__(self, schema: type[Schema], name: str) -> None:
        self._before = f'{{\n "schema": "{schema.schema}",\n "chai": "{__version__}",\n "{name}": ['
        self._between = "\n"

    def add(self, item: Mapping[str, Any]) -> None:
        """Print one more result."""
        self._write(self._before + self._between + indent(_json(_plain(item)), "  "))
        self._before, self._between = "", ",\n"

    def end(self, values: Mapping[str, Any]) -> None:
        """Print the other values."""
        last = "]" if self._before else "\n ]"
        self._write(
            self._before + last + "".join(f",\n{_json(_plain({k: v}))[2:-2]}" for k, v in values.items()) + "\n}\n"
        )

    def _write(self, text: str) -> None:
        sys.stdout.write(text)  # JSON is ASCII, and has no control characters
        sys.stdout.flush()


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, allow_nan=False)


def plain_values(content: Schema) -> dict[str, Any]:
    """Return what ``as_json`` prints: dictionaries, lists, text, finite numbers and None."""
    return {"schema": content.schema, "chai": __version__, **_plain(content)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):  # a NamedTuple
        value = value._asdict()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def progress(items: Iterable[T], total: int, what: str, quiet: bool = False) -> Iterator[T]:
    """Yield the items, and show the number of finished ones with ``meter``."""
    with meter(what, quiet) as tell:
        for done, item in enumerate(items):
            tell(done, total)
            yield item


@contextmanager
def meter(what: str, quiet: bool = False, bytes: bool = False) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function to call with the finished amount and the total (None: unknown).

    After two seconds a bar is shown on stderr; if that is no terminal, a line every ten seconds.
    """
    started = printed = monotonic()
    bar: _Bar | None = None

    def tell(done: int, total: int | None) -> None:
        nonlocal bar, printed
        if quiet:
            return
        now = monotonic()
        if bar is None and now - started > 2 and sys.stderr.isatty():
            bar = _Bar(what, total, bytes)
        if bar is not None:
            bar.update(done, total)
        elif now - printed > 10:
            printed = now
            left = f", about {(now - started) / max(done, 1) * (total - done):.0f} s left" if total else ""
            sizes = [quantity(n) + "B" if bytes else str(n) for n in (done, total) if n is not None]
            say(f"{what}: {' of '.join(sizes)}{left}")

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()


class _Bar:
    """A bar of the display on the terminal. There is one display: work within other work adds its bar to it."""

    display: Any = None
    lock = Mutex()  # threads work at once

    def __init__(self, what: str, total: int | None, bytes: bool) -> None:
        from rich.markup import escape

        with _Bar.lock:
            if not _Bar.display:
                _Bar.display = _display(bytes)
                _Bar.display.start()
            self.task = _Bar.display.add_task(escape(visible(what)), total=total)

    def update(self, done: int, total: int | None) -> None:
        _Bar.display.update(self.task, completed=done, total=total)

    def stop(self) -> None:
        with _Bar.lock:
            _Bar.display.remove_task(self.task)
            if not _Bar.display.tasks:
                _Bar.display.stop()
                _Bar.display = None


def _display(bytes: bool) -> Any:
    from rich import progress as rich
    from rich.console import Console

    amount = (rich.DownloadColumn(), rich.TransferSpeedColumn()) if bytes else (rich.MofNCompleteColumn(),)
    columns = (rich.TextColumn("{task.description}"), rich.BarColumn(), *amount, rich.TimeRemainingColumn())
    return rich.Progress(*columns, console=Console(stderr=True), transient=True)
