"""Description of an OpenCL layer: its kernels, the values of their parameters, and their work sizes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from .formula import Formula


@dataclass(frozen=True)
class Port:
    """A bottom ("input") or top ("output") of the layer."""

    side: str
    number: int


@dataclass(frozen=True)
class Tensor:
    """An argument of a kernel that is a bottom or a top, in a format of ``FORMATS``."""

    port: Port
    format: str


@dataclass(frozen=True)
class Trained:
    """An argument that is a trained parameter, in caffemodel order."""

    blob: int
    name: str


@dataclass(frozen=True)
class Size:
    """A scalar that is a size of a bottom or top: B, F, Y or X."""

    port: Port
    dim: str


@dataclass(frozen=True)
class Given:
    """A scalar from the prototxt, ``kind`` int or float."""

    name: str
    kind: str


@dataclass(frozen=True)
class Buffer:
    """Memory that the stages of a layer share, by number, of ``size`` bytes for the dims of ``port``."""

    number: int
    size: Formula
    port: Port


Binding = Tensor | Trained | Size | Given | Buffer


@dataclass(frozen=True)
class Define:
    """A ``#define``: ``kind`` is int, float, int[], float[] or ""; ``param`` names the prototxt's value, or is ""."""

    name: str
    kind: str
    param: str
    default: str | None


@dataclass(frozen=True)
class Stage:
    """One kernel of a layer: ``bindings`` has one item per parameter, in their order.

    ``texts`` are the sources, each with its file's name. ``sizes`` and ``local``: its work sizes, as formulas of the dims of
    ``port``; without local ones OpenCL chooses. ``threads``: most of the processor's, or None.
    """

    entry: str
    texts: tuple[tuple[str, str], ...]
    defines: tuple[Define, ...]
    bindings: tuple[Binding, ...]
    options: str
    sizes: tuple[Formula, ...]
    local: tuple[Formula, ...]
    port: Port
    threads: int | None
    built_in_defines: bool
    place: str


@dataclass(frozen=True)
class Description:
    """A layer type: its kernels, which run in this order."""

    type: str
    stages: tuple[Stage, ...]
    files: tuple[Path, ...]

    @property
    def folders(self) -> list[Path]:
        """Return the folders of headers that its options for the compiler name."""
        words = [word for stage in self.stages for word in shlex.split(stage.options)]
        return [Path(word[2:]) for word in words if word.startswith("-I")]

    @property
    def place(self) -> str:
        """Return path:line."""
        return self.stages[0].place

    @property
    def per_image(self) -> bool:
        """Return whether its kernels compute one image: no work size, buffer or scalar is of the batch."""
        bindings = [binding for stage in self.stages for binding in stage.bindings]
        formulas = [f for s in self.stages for f in (*s.sizes, *s.local)]
        formulas += [b.size for b in bindings if isinstance(b, Buffer)]
        return not any(f.names("B") for f in formulas) and not any(
            isinstance(b, Size) and b.dim == "B" for b in bindings
        )

    @property
    def tops(self) -> int:
        """Return the number of tops that its kernels use."""
        ports = [b.port for stage in self.stages for b in stage.bindings if isinstance(b, (Tensor, Size))]
        return max((port.number + 1 for port in ports if port.side == "output"), default=0)
