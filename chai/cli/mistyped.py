"""Suggest what a mistyped command line may mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..util.suggest import nearest
from ..zoo import networks

_SYNONYMS = {
    "run": ("predict", "infer", "inference", "classify", "detect", "segment", "forward", "test"),
    "show": ("info", "summary", "summarize", "inspect", "describe", "view", "print", "visualize"),
    "check": ("compare", "verify", "diff"),
    "evaluate": ("accuracy", "validate", "score"),
    "quantize": ("calibrate", "int8"),
    "compile": ("build", "export", "convert"),
    "bench": ("time", "speed", "profile"),
    "fetch": ("download", "get", "pull"),
}


def hint(argv: Sequence[str], commands: Iterable[str]) -> str:
    """Return a hint for a command line whose first word is no command."""
    name = argv[0]
    if networks.prototxt(name) is not None or name.endswith((".prototxt", ".chai")):
        command = "run" if {"-i", "--image"} & {*argv} else "show"
        return f"{name} is a network: chai {command} {' '.join(argv)}"
    near = [command for command, words in _SYNONYMS.items() if name.lower() in words] or nearest(name, commands)
    return f"did you mean chai {near[0]}?" if near else "chai --help lists the commands"
