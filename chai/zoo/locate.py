"""Find the files of the network that a user names, and read its Graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..blob import Shape
from ..env import env
from ..errors import UsageError
from ..graph import Graph
from ..parser.caffemodel import Stored, Weights
from ..plugins.loading import Sources, registry_of
from ..util.files import content, in_its_place
from ..util.interpreter import Uncollected
from ..util.log import logger
from ..util.suggest import did_you_mean
from . import is_compiled, is_onnx, networks
from .card_file import read_card
from .fetch import fetched, source_of

log = logger("chai.weights")
FORMATS = ".formats.json"  # how the name of a file with formats ends


def locate(
    prototxt: str | Path, caffemodel: str | Path | None, compiled: bool = False, adjacent: bool = False
) -> tuple[Path, Path | None]:
    """Return the files of a network, given the name of a shipped one or paths.

    An ONNX file is both; formats may be given with it in place of weights. Without ``caffemodel`` a shipped network uses
    its shipped weights, else its fetched ones; NAME.prototxt, if ``adjacent``, the NAME.caffemodel in its folder. A bare
    file name that is not in the current folder may be that of fetched weights. Raises UsageError if there is no such
    network, or for a compiled network unless ``compiled``.
    """
    path, weights = Path(prototxt), None if caffemodel is None else _stored(Path(caffemodel))
    if is_onnx(path):
        _check(path, "an ONNX file")
        if weights is None or weights == path:
            return path, path
        _check(weights, f"a {FORMATS}")
        if not weights.name.endswith(FORMATS):
            raise UsageError(
                f"{path} is an ONNX file, which has its weights: {caffemodel} cannot be given, too",
                hint=f"leave it out; formats of chai quantize are FILE{FORMATS}",
            )
        return path, weights
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
        return shipped, weights or (own if own.exists() else fetched(str(prototxt)))
    if not path.exists():
        near = did_you_mean(path.name.removesuffix(".prototxt"), networks.names(), quoted=False)
        listed = (
            in_its_place(path) if path.suffix in (".prototxt", ".chai") else "shipped: " + ", ".join(networks.names())
        )
        raise UsageError(f"there is no file {str(prototxt)!r} and no shipped network of that name", hint=near or listed)
    _check(path, "a .prototxt")
    own = path.with_suffix(".caffemodel")
    if weights is None and adjacent and not is_compiled(path) and own.is_file():
        log.info("weights: %s, next to the prototxt", own)
        return path, own
    return path, weights


def _stored(weights: Path) -> Path:
    """Return weights in the cache for a bare name that is no file here but one there, else the path itself."""
    cached = Path(env().cache, weights.name)
    bare = weights.suffix == ".caffemodel" and weights == Path(weights.name)
    return cached if bare and not weights.exists() and cached.is_file() else weights


def _check(path: Path, expected: str) -> None:
    """Raise UsageError unless this is a file. Pipes are refused, as networks are read more than once."""
    if path.is_dir():
        inside = sorted(p.name for p in path.glob(f"*.{expected.rpartition('.')[2]}"))
        hint = f"it holds {', '.join(inside[:4])}" if inside else "name the file in it"
        raise UsageError(f"{str(path)!r} is a folder, expected {expected}", hint=hint)
    if not path.exists():
        raise UsageError(
            f"there is no file {str(path)!r}, expected {expected}",
            hint=source_of(path.name) or in_its_place(path),
        )
    if not path.is_file():
        raise UsageError(f"{str(path)!r} is a pipe or a device, expected {expected}", hint="save it to a file first")


def files_of(network: str | Path) -> list[str]:
    """Return the files that a network's file consists of: itself, and those with an ONNX model's external data."""
    if not is_onnx(network):
        return [str(network)]
    from ..onnx import files_of as of_model

    return of_model(network)


def read_graph(
    path: Path,
    custom: Sources | None = None,
    phase: str = "TEST",
    level: int = 0,
    stages: Sequence[str] = (),
    strict: bool = False,
) -> Graph:
    """Read the Graph of a prototxt, with its own and all registered custom layers; ``strict``: see Net."""
    from ..parser.build import NetState
    from ..parser.load import load_graph  # a compiled network needs none of it

    with Uncollected():
        return load_graph(path, registry_of(custom, strict), NetState(phase, level, stages), strict)


def read_network(
    path: Path | bytes,
    weights: Path | None,
    sizes: Mapping[str, Shape] | None = None,
    detect: Mapping[str, Any] | str | None = None,
    **how: Any,
) -> tuple[Graph, Stored | None]:
    """Return the Graph of a network that ``locate`` has found, and its trained parameters; ``how``: as ``read_graph``.

    With ``detect``, or [detect] in its card, it has the head of a detector.

    ``path`` may be the bytes of an ONNX file, ``weights`` the formats of an ONNX file. ``sizes`` are shapes of inputs, for an
    ONNX file, in place of its own.
    """
    stored: Stored | None
    if not isinstance(path, bytes) and not is_onnx(path):
        graph, stored = read_graph(path, **how), None if weights is None else Weights(weights)
    else:
        chosen = next((name for name in ("level", "stages") if how.get(name)), None)
        chosen = "phase" if how.get("phase", "TEST") != "TEST" else chosen
        if chosen is not None:
            raise UsageError(f"{chosen}: an ONNX file has no phases, levels and stages", hint="leave it out")
        with Uncollected():
            from ..onnx import load_onnx  # a network of Caffe needs none of it

            registry = registry_of(how.get("custom"), how.get("strict", False))
            graph, stored = load_onnx(path, registry, sizes, None if weights == path else weights)
    card = None if isinstance(path, bytes) else path.with_suffix(".toml")
    if detect is None and not (card and card.is_file() and b"detect" in content(card, "card_bytes")):
        return graph, stored
    from ..detect.attach import with_head  # which few networks need

    return with_head(graph, detect, read_card(graph.path).detect, sizes or {}), stored
