"""Other programs that run the same network: the files that each reads, and a function that opens them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ...blob import Array
from ...errors import UsageError
from ...graph import Graph

Run: TypeAlias = Callable[[], Any]  # returns the outputs in the network's order
SETS = ("amx", "vnni", "avx512", "avx2", "bf16", "dotprod", "neon")  # of instructions, as names of kernels have them
IMPLIED = {"amx": ("vnni", "avx512", "avx2"), "vnni": ("avx2",), "avx512": ("avx2",), "dotprod": ("neon",)}


class Subject(NamedTuple):
    """A network: its graph as its prototxt has it, the paths of its Caffe files, its inputs, and the threads it may use."""

    graph: Graph
    files: tuple[str, str]
    feeds: Mapping[str, Array]
    threads: int


@dataclass(frozen=True)
class PeerEngine:
    """Another program that runs networks.

    ``files(subject, folder)`` writes what it reads to ``folder`` and returns the words that ``open`` takes, names of files first.
    ``open(words, feeds, threads)`` returns a function that computes the outputs; it may raise anything. Its source also runs
    alone in a process (``start.source``), so it imports what it needs and uses nothing else of its module.
    ``instructions(run)`` returns names of kernels or features that name the sets of instructions it uses.
    """

    module: str  # that ``open`` imports, for the version
    extra: str  # of chai, which installs it
    files: Callable[[Subject, Path], Sequence[str]]
    open: Callable[[Sequence[str], Mapping[str, Array], int], Run]
    instructions: Callable[[Any], Iterable[str]] = lambda _: ()


def sets(names: Iterable[str]) -> list[str]:
    """Return the sets of instructions that are in some names, the best first."""
    words = re.findall("|".join(SETS), " ".join(names).lower())
    return [name for name in SETS if name in words]


def unlike(instructions: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a sentence for each peer that uses instructions which chai does not, from the sets of each."""
    own = {*instructions["chai"]}
    own |= {name for known in own for name in IMPLIED.get(known, ())}
    for peer, used in instructions.items():
        if more := [name for name in used if name not in own]:
            yield f"{peer} uses {', '.join(more)}, which chai's kernels ({', '.join(instructions['chai']) or 'numpy'}) do not"


def _opencv(words: Sequence[str], feeds: Mapping[str, Array], threads: int) -> Run:
    import cv2

    if not hasattr(cv2.dnn, "readNetFromCaffe"):
        raise RuntimeError(
            f"version {cv2.__version__} no longer reads Caffe files: pip install 'opencv-python-headless<5'"
        )
    cv2.setNumThreads(threads)
    prototxt, weights, *outputs = words
    net = cv2.dnn.readNetFromCaffe(prototxt, weights)

    def run() -> list[Array]:
        for name, value in feeds.items():
            net.setInput(value, name)
        return list(net.forward(outputs))

    return run


def _features(_: Run) -> Iterable[str]:
    """Return what OpenCV was compiled for and finds in the processor; it marks others with "?"."""
    import cv2

    return [name for name in cv2.getCPUFeaturesLine().split() if not name.endswith("?")]


OPENCV = PeerEngine("cv2", "bench", lambda subject, _: (*subject.files, *subject.graph.outputs), _opencv, _features)


class Peer(NamedTuple):
    """An engine with a network: ``run`` computes the outputs, or is the reason why it cannot.

    ``words`` are what its engine opens.
    """

    name: str
    words: Sequence[str]
    run: Run | str


def opened(names: Iterable[str], engines: Mapping[str, PeerEngine], subject: Subject, folder: Path) -> Iterator[Peer]:
    """Yield each engine after it has run once, or the reason why it cannot; its files are written to ``folder``."""
    for name in names:
        engine = engines[name]
        words: Sequence[str] = ()
        run: Run | str
        try:
            words = engine.files(subject, folder)
            run = engine.open(words, subject.feeds, subject.threads)
            run()
        except ImportError:
            run = f'it is not installed (pip install "chai-fpga[{engine.extra}]")'
        except UsageError as error:
            run = error.message + (f" ({error.hint})" if error.hint else "")
        except Exception as error:  # of types that the libraries do not document
            last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
            run = f"it cannot run this network ({last})"
        yield Peer(name, words, run)
