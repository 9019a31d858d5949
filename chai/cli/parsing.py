"""Parse the arguments of commands: argparse with a short usage line, groups of options and hints for misspelt ones."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from ..errors import ChaiError, UsageError
from ..plugins import CODE
from ..text import tell
from ..util.suggest import did_you_mean
from . import output

_ADDRESS = re.compile(r"(?:-[^=]*=)?((?:https?|ftp|s3|gs)://.*)", re.DOTALL | re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """ArgumentParser that prints one line of usage, and answers ``--drwa`` with "did you mean --draw?"."""

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse ``argv``. ``typed`` of the result maps the options that were typed to their names: {"bits": "--bits"}.

        ``prog`` of the result is the command: "chai run".
        Raises UsageError for the address of a file: commands read files of this computer alone; and for a file to write that
        is read, too, or written twice.
        """
        for address in filter(None, map(_ADDRESS.fullmatch, argv)):
            raise UsageError(f"{address[1]} is an address, expected a file", hint=f"curl -O {address[1]}")
        self._negative_number_matcher = re.compile(r"-\.?\d")  # values, too: -1,-2,-3 and -1e-3
        self.usage = self.usage or self._short_usage()
        args = self.parse_args(argv)
        self._keep_apart(args)
        args.prog = self.prog
        for action in self._actions:
            action.default = argparse.SUPPRESS
        self._defaults.clear()
        typed = vars(self.parse_args(argv))
        args.typed = {a.dest: a.option_strings[-1] for a in self._actions if a.option_strings and a.dest in typed}
        return args

    def error(self, message: str) -> NoReturn:
        """Print usage, message and hint, and exit with code 2. The message may quote a file name: print it escaped."""
        self.print_usage(sys.stderr)
        tell(sys.stderr, f"{self.prog}: error: {message}", *self._hints(message))
        raise SystemExit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or usage. argparse ignores a stream that fails."""
        (file or sys.stderr).write(message)

    def _keep_apart(self, args: argparse.Namespace) -> None:
        """Raise UsageError for a file to write that is there and read, or that another option writes."""
        values = {a: value for a in self._actions if (value := getattr(args, a.dest, None)) is not None}
        written = [a for a in values if getattr(a.type, "func", a.type) is output.file]
        read = [a for a in values if a not in written] if written else []
        outputs = [(a, path) for a in written for path in _with_weights(values[a])]
        inputs = [(a, Path(path)) for a in read for path in _paths(values[a])]
        for action, path in outputs:
            place = os.path.realpath(path)
            for other, near in (*outputs, *inputs):
                same = other is not action and os.path.realpath(near) == place
                if same and (other in written or os.path.isfile(place)):
                    raise _overwriting(action, path, f"{_name(other)} names")
            for other, near in inputs if "weights" in args and os.path.isfile(place) else ():
                if place in map(os.path.realpath, _implied(args, other.dest, near)):
                    raise _overwriting(action, path, f"is read for {_name(other)}")

    def _short_usage(self) -> str:
        """Return a usage of positional arguments, required options, and "[options]" for all others."""
        words = ["%(prog)s"]
        for action in sorted(self._actions, key=lambda action: bool(action.option_strings)):
            if action.option_strings and not action.required:
                continue
            name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            name += "..." * (action.nargs in ("*", "+"))
            words += action.option_strings[:1]
            words.append(f"[{name}]" if action.nargs in ("?", "*") else name)
        return " ".join([*words, "[options]"])

    def _hints(self, message: str) -> list[str]:
        _, _, unknown = message.partition("unrecognized arguments: ")
        for word in unknown.split():
            name = word.partition("=")[0]
            near = did_you_mean(name, self._option_string_actions, quoted=False) if name.startswith("-") else None
            if near:
                return [f"hint: {near}"]
        return [f"hint: {self.prog} --help lists the options"]


def _paths(value: Any) -> Iterator[str | Path]:
    if isinstance(value, (str, Path)):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item)


def _implied(args: argparse.Namespace, option: str, place: Path) -> Iterator[Path]:
    """Yield the files that are read because ``option`` has ``place``: those with a network, and those in a folder."""
    from ..images.files import FORMATS  # where an output is there already
    from ..zoo.locate import files_of, locate

    if option == "net":
        with suppress(ChaiError, OSError):  # of a network that cannot be read
            path, stored = locate(args.net, args.weights, compiled=True, adjacent=True)
            yield from (path.with_suffix(".toml"), *([stored] if stored else []), *map(Path, files_of(path)))
    if os.path.isdir(place):
        kinds = (*CODE, ".xml") if option == "custom" else (*FORMATS, ".npy")
        yield from (file for file in chain(place.glob("*"), place.glob("*/*")) if file.suffix.lower() in kinds)


def _with_weights(path: Path) -> Iterator[Path]:
    """Yield a file to write; and what is written with it, if it is a prototxt."""
    yield path
    if path.suffix == ".prototxt":
        yield from map(path.with_suffix, (".caffemodel", ".toml"))


def _name(action: argparse.Action) -> str:
    return action.option_strings[-1] if action.option_strings else str(action.metavar)


def _overwriting(action: argparse.Action, path: Path, why: str) -> UsageError:
    return UsageError(f"{_name(action)} would overwrite {str(path)!r}, which {why}", hint="name another file")


def section(parser: argparse.ArgumentParser, title: str, description: str | None = None) -> argparse._ArgumentGroup:
    """Return the group of options with this title; create it on first use."""
    for group in parser._action_groups:
        if group.title == title:
            return group
    return parser.add_argument_group(title, description)


def option(group: argparse._ActionsContainer, spelling: str, help: str, **keywords: Any) -> None:
    """Add an option: ``option(group, "-o --output FILE", "file to write", type=file)``; one without a value is a switch.

    The help ends with the default, if there is one and it does not speak of it itself.
    """
    words = spelling.split()
    names = [word for word in words if word.startswith("-")]
    if len(words) > len(names):
        keywords.setdefault("metavar", words[-1])
    elif not keywords:
        keywords["action"] = "store_true"
    if keywords.get("default") not in (None, [], {}) and "default" not in help:
        help += f" (default: {keywords['default']})"
    group.add_argument(*names, help=help, **keywords)


def refuse(args: argparse.Namespace, options: Iterable[str], why: str, hint: str | None = None) -> None:
    """Raise UsageError if one of these options was typed and would do nothing; ``why`` completes the sentence."""
    for option in options:
        if option in args.typed:
            raise UsageError(f"{args.typed[option]} does nothing {why}", hint=hint or "leave it out")
