"""The parser of every command: argparse, with a hint for misspelt options and a record of the options that were typed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import NoReturn

from ..errors import UsageError
from ..util.suggest import did_you_mean
from ..util.text import tell


class Parser(argparse.ArgumentParser):
    """ArgumentParser that answers ``--drwa`` with "did you mean --draw?"."""

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse ``argv``. ``typed`` of the result maps the options that were typed to their names: {"bits": "--bits"}."""
        args = self.parse_args(argv)
        for action in self._actions:
            action.default = argparse.SUPPRESS
        self._defaults.clear()
        typed = vars(self.parse_args(argv))
        args.typed = {a.dest: a.option_strings[-1] for a in self._actions if a.option_strings and a.dest in typed}
        return args

    def error(self, message: str) -> NoReturn:
        """Exit with code 2 after usage, message and hint. What was typed may be a file's name: it is shown, not obeyed."""
        self.print_usage(sys.stderr)
        tell(sys.stderr, f"{self.prog}: error: {message}", *self._hints(message))
        raise SystemExit(2)

    def _hints(self, message: str) -> list[str]:
        _, _, unknown = message.partition("unrecognized arguments: ")
        for word in unknown.split():
            name = word.partition("=")[0]
            near = did_you_mean(name, self._option_string_actions, quoted=False) if name.startswith("-") else None
            if near:
                return [f"hint: {near}"]
        return []


def refuse(args: argparse.Namespace, options: Iterable[str], why: str, hint: str | None = None) -> None:
    """Raise UsageError if one of these options was typed, since it would do nothing; ``why`` completes the sentence."""
    for option in options:
        if option in args.typed:
            raise UsageError(f"{args.typed[option]} does nothing {why}", hint=hint)
