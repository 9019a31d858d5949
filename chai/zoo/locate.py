"""Find the files of the network that a user names, and read its Graph."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import parser
from ..env import env
from ..errors import UsageError
from ..graph import Graph
from ..plugins.loading import Sources, registry_of
from ..util.interpreter import Uncollected
from ..util.suggest import did_you_mean
from . import is_compiled, networks


def locate(prototxt: str | Path, caffemodel: str | Path | None, compiled: bool = False) -> tuple[Path, Path | None]:
    """Return the files of a network, given the name of a shipped one or paths.

    A shipped network without ``caffemodel`` uses its shipped weights, else its fetched ones. Raises UsageError if there is
    no such network, or for a compiled network unless ``compiled``.
    """
    path, weights = Path(prototxt), None if caffemodel is None else Path(caffemodel)
    if is_compiled(path) and not compiled:
        raise UsageError(
            f"{path} is compiled, expected a prototxt",
            hint="name what it was compiled from; run, show, bench and evaluate take it as it is",
        )
    shipped = None if path.is_file() else networks.prototxt(str(prototxt))
    if weights is not None and not weights.exists() and shipped is None and not path.exists():
        raise UsageError(
            f"there is neither a file {str(prototxt)!r} (or a shipped network of that name) nor {str(caffemodel)!r}",
            hint="expected a .prototxt and a .caffemodel",
        )
    if weights is not None:
        _check(weights, "a .caffemodel")
    if shipped is not None:
        own = shipped.with_suffix(".caffemodel")
        return shipped, weights or (own if own.exists() else _fetched(str(prototxt)))
    if not path.exists():
        raise UsageError(
            f"there is no file {str(prototxt)!r} and no shipped network of that name",
            hint=did_you_mean(str(prototxt), networks.names(), quoted=False)
            or "shipped: " + ", ".join(networks.names()),
        )
    _check(path, "a .prototxt")
    return path, weights


def _check(path: Path, expected: str) -> None:
    """Raise UsageError unless this is a file. Pipes are refused, as networks are read more than once."""
    if path.is_dir():
        suffix = "." + expected.rpartition(".")[2]
        inside = sorted(p.name for p in path.glob("*" + suffix))
        hint = f"it holds {', '.join(inside[:4])}" if inside else None
        raise UsageError(f"{str(path)!r} is a folder, expected {expected}", hint=hint)
    if not path.exists():
        raise UsageError(f"there is no file {str(path)!r}, expected {expected}")
    if not path.is_file():
        raise UsageError(f"{str(path)!r} is a pipe or a device, expected {expected}", hint="save it to a file first")


def _fetched(name: str) -> Path | None:
    if not any(Path(env().cache).glob("*.caffemodel")):  # avoids importing the download code
        return None
    from .fetch import fetched

    return fetched(name)


def read_graph(
    path: Path,
    custom: Sources | None = None,
    phase: str = "TEST",
    level: int = 0,
    stages: Sequence[str] = (),
    strict: bool = False,
) -> Graph:
    """Read the Graph of a prototxt, with its own and all registered custom layers; ``strict``: see Net."""
    with Uncollected():
        return parser.load_graph(path, registry_of(custom, strict), phase, level, stages, strict)
