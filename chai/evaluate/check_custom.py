"""Check that a custom layer computes the same result with every implementation.

Plain Python is the reference for the compiled function and for every other implementation, on random inputs and for
several batch sizes. Guard words around every top and a second run on the same inputs reveal reads and writes out of
bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, asdict, dataclass
from statistics import median
from time import perf_counter
from typing import Any

from ..blob import Array, Shape, show
from ..errors import PluginError, UsageError
from ..fixed import Format
from ..plugins.compiling import available
from ..plugins.definition import CustomType, Definition, Implementation, plain_type
from ..plugins.fields import CustomParams
from ..plugins.frame import Frame, candidates
from ..plugins.layer import CustomLayer
from ..plugins.loading import load_shipped
from ..plugins.registry import REGISTRY
from ..util.keywords import function_of
from ..util.lazy_numpy import np
from ..util.table import plain

Tops = tuple[Array, ...]

TOLERANCE = 1e-4  # relative to the largest value that plain Python computes
ROUNDS = 5
DIFFER = "two runs on the same inputs differ"


@dataclass(frozen=True)
class Row:
    """One implementation on inputs of one size. ``difference`` is relative to the largest value (int8: in steps)."""

    layer: str
    inputs: str
    way: str
    difference: float
    ms: float
    ok: bool
    note: str = ""


@dataclass(frozen=True)
class CustomReport:
    """The result of ``check_custom``; ``ok`` if every implementation agrees."""

    type: str
    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Return whether every implementation agrees with plain Python everywhere."""
        return all(row.ok for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return numbers and names for json.dumps."""
        return {"type": self.type, "ok": self.ok, "rows": [asdict(row) for row in self.rows]}

    def __str__(self) -> str:
        head = ("layer", "inputs", "way", "difference", "ms", "")
        rows = [
            (r.layer, r.inputs, r.way, f"{r.difference:.2g}", f"{r.ms:.3f}", ("ok " if r.ok else "FAILED ") + r.note)
            for r in self.rows
        ]
        return plain(head, rows, "lllrrl")


@dataclass(frozen=True)
class CustomTrial:
    """The arguments of ``check_custom``, which describes them."""

    type: str | CustomType
    inputs: Sequence[Shape]
    _: KW_ONLY
    params: Sequence[Shape | Array] = ()
    float_args: Sequence[float] = ()
    string_args: Sequence[str] = ()
    top_dim: Sequence[int] = ()
    tops: int = 1
    tolerance: float = TOLERANCE
    seed: int = 0

    def layer(self, custom: CustomType) -> CustomLayer:
        """Return a layer of the type."""
        rng = np.random.default_rng(self.seed)
        return CustomLayer(
            custom,
            name=custom.type,
            type=custom.type,
            bottoms=tuple(f"bottom{i}" for i in range(len(self.inputs))),
            tops=tuple(f"top{i}" for i in range(self.tops)),
            params=CustomParams(tuple(self.top_dim), tuple(self.float_args), tuple(self.string_args)),
            blobs=[np.asarray(p, np.float32) if isinstance(p, np.ndarray) else _random(p, rng) for p in self.params],
        )


@function_of(CustomTrial)
def check_custom(trial: CustomTrial) -> CustomReport:
    """Compare all implementations of a custom type on random inputs of these shapes, with batches of 1 and 3.

    ``type``    a registered type's name, or what the decorator returned
    ``params``  trained parameters: arrays, or shapes of random ones
    Raises PluginError for an unknown type or a function that fails.
    """
    custom: Definition | None
    if isinstance(trial.type, str):
        load_shipped()
        custom = REGISTRY.find(trial.type)
        if custom is None:
            hint = "registered: " + ", ".join(REGISTRY.known())
            raise PluginError(f"there is no custom type {trial.type!r}", hint=hint)
    else:
        custom = plain_type("function", trial.type)
    if not isinstance(custom, CustomType):
        what = f"custom type {custom.type!r} ({custom.place}) is composed of layers"
        raise PluginError(what, hint="check a network that has it: chai check NET WEIGHTS -i IMG")
    inputs = [tuple(shape) for shape in trial.inputs]
    return CustomReport(custom.type, tuple(check_layer(trial.layer(custom), inputs, trial.tolerance, trial.seed)))


def check_layer(
    layer: CustomLayer, bottoms: Sequence[Shape], tolerance: float = TOLERANCE, seed: int = 0
) -> Iterator[Row]:
    """Yield the rows for one layer of a network, with its own parameters, on random inputs of these shapes."""
    if not bottoms or any(not s for s in bottoms):
        raise UsageError("check_custom needs the shape of every input, batch first")
    rng = np.random.default_rng(seed)
    for batch in dict.fromkeys((bottoms[0][0], 1, 3)):
        shapes = tuple((batch, *s[1:]) if s[0] == bottoms[0][0] else s for s in bottoms)
        yield from _Case(layer, shapes, [_random(s, rng) for s in shapes], tolerance).rows()


def _random(shape: Sequence[int], rng: Any) -> Array:
    drawn: Array = rng.standard_normal(tuple(shape)).astype(np.float32)
    return drawn


class _Case:
    def __init__(self, layer: CustomLayer, shapes: tuple[Shape, ...], data: list[Array], tolerance: float) -> None:
        self.layer, self.shapes, self.data, self.tolerance = layer, shapes, data, tolerance
        self.tops = layer.shapes(*shapes)
        self.python = copy(layer)
        self.python.jit = False
        self.label = " ".join(map(show, shapes))

    def rows(self) -> Iterator[Row]:
        reference = self.layer.custom.implementations[0]
        frame = Frame(self.python, self.shapes, self.tops, None, reference)
        self.expected, ms = _timed(frame, self.data)
        same = _same(self.expected, _timed(frame, self.data)[0])
        way = getattr(reference.function, "way", "python")
        yield Row(self.layer.name, self.label, way, 0.0, ms, same, "the reference" if same else DIFFER)
        for codes in (False, True):
            for implementation in candidates(self.layer, self.shapes, self.tops, codes):
                if implementation is not reference or (implementation.jit and available()):
                    yield self._row(implementation)
                if implementation.zero_points:
                    yield self._row(implementation, unsigned=True)

    def _row(self, implementation: Implementation, unsigned: bool = False) -> Row:
        kind = "compiled" if implementation.jit and available() else getattr(implementation.function, "way", "python")
        way = f"{implementation.name} ({kind})" + ", unsigned" * unsigned
        try:
            if implementation.dtype == "int8":
                frame, data, expected = self._codes(implementation, unsigned)
                unit = bound = 1.0
            else:
                frame = Frame(self.layer, self.shapes, self.tops, None, implementation)
                data, expected = self.data, self.expected
                unit = max((float(np.abs(w[np.isfinite(w)]).max(initial=0)) for w in expected), default=0.0) or 1.0
                bound = 4 * self.tolerance if implementation.dtype == "float16" else self.tolerance
            (actual, _), *again = [_timed(frame, data) for _ in range(1 + ROUNDS)]
        except PluginError as error:
            return Row(self.layer.name, self.label, way, float("inf"), 0.0, False, error.message)
        difference = _distance(actual, expected) / unit
        same = all(_same(actual, tops) for tops, _ in again)
        ok, note = difference <= bound and same, "" if same else DIFFER
        return Row(self.layer.name, self.label, way, difference, median(ms for _, ms in again), ok, note)

    def _codes(self, implementation: Implementation, unsigned: bool) -> tuple[Frame, Sequence[Array], Sequence[Array]]:
        """Return the layer on codes, its inputs, and what plain Python makes of their values, in steps of the outputs.

        ``unsigned``: the inputs' magnitudes, in unsigned codes.
        """
        data = [np.abs(d) for d in self.data] if unsigned else self.data
        into = tuple(_format(d, unsigned) for d in data)
        codes = [f.quantize(d) for f, d in zip(into, data)]
        exact = Frame(self.python, self.shapes, self.tops, None, self.layer.custom.implementations[0])
        expected, _ = _timed(exact, [f.dequantize(c) for f, c in zip(into, codes)])
        out = tuple(_format(w, unsigned and bool((w >= 0).all())) for w in expected)
        frame = Frame(self.layer, self.shapes, self.tops, (into, out), implementation)
        return frame, codes, [w / o.step + o.zero for w, o in zip(expected, out)]


def _format(values: Array, unsigned: bool) -> Format:
    return Format("Xilinx", 8, float(np.abs(values).max(initial=0)) or 1.0, unsigned)


def _distance(actual: Sequence[Array], expected: Sequence[Array]) -> float:
    """Return the largest difference of any element; equal infinities have the difference 0."""
    with np.errstate(invalid="ignore"):
        return max(float(np.abs(np.where(f == w, 0, f - w)).max(initial=0)) for f, w in zip(actual, expected))


def _same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second))


def _timed(frame: Frame, data: Sequence[Array]) -> tuple[Tops, float]:
    """Return the tops and the time in milliseconds."""
    begin = perf_counter()
    with np.errstate(all="ignore"):
        tops = frame.run(data)
    return tops, (perf_counter() - begin) * 1000
