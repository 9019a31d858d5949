"""CHaiDNN's layer list: estimate each layer's time on an overlay by a model in clock cycles, not a measurement.

A list is CSV without a header. Each line is a layer type and the integers named by ``COLUMNS``, with sizes in pixels;
further cells are ignored, as in CHaiDNN. Types that CHaiDNN's evaluation does not time count as 0 ms here too: FREE types
are part of a neighbouring layer, HOST types do not run on the overlay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..blob import Shape, count, show
from ..errors import ParseError, ShapeError, UsageError
from ..fixed import Requantization
from ..graph import Layer
from ..graph.params import SIZE
from ..layers.batch_norm import BatchNorm
from ..layers.convolution import Convolution
from ..layers.eltwise import Eltwise
from ..layers.pooling import Pooling
from ..limits import limits
from ..overlay import Overlay, default
from ..tasks import Task
from ..tasks.affine import Affine
from ..tasks.conv import Conv
from ..tasks.eltwise import Eltwise as Addition
from ..tasks.pool import Pool
from ..tasks.window import Window
from ..text import number_of
from ..util.files import complete, content, decoded
from ..util.lazy_numpy import np
from ..util.source import SourceText
from ..util.suggest import did_you_mean

_BLOB = ("input height", "input width", "input channels")
_WINDOW = (
    *_BLOB,
    *("kernel height", "kernel width", "stride height", "stride width", "pad height", "pad width"),
    *("output height", "output width", "output channels"),
)
COLUMNS = {
    "CONV": (*_WINDOW, "group", "dilation"),
    "CONV3D": (*_WINDOW, "group", "dilation"),  # CHaiDNN's name for a depthwise convolution
    "MAXPOOL": _WINDOW,
    "AVEPOOL": _WINDOW,
    "BN": _BLOB,
    "ELTWISE": _BLOB,
}
FREE = ("CONCAT", "DROPOUT", "FLATTEN", "RELU", "RESHAPE", "SCALE")
HOST = ("ARGMAX", "CRELU", "CROP", "DECONV", "INNERPROD", "L2NORM", "NMS", "PERMUTE", "POWER", "PRIORBOX", "SOFTMAX")
HINT = "columns are separated by commas, as in CONV,224,224,3,7,7,2,2,3,3,112,112,64,1,1"
_AXES = ("height", "width")
_MOST = max(map(len, COLUMNS.values()))


@dataclass(frozen=True)
class LineEstimate:
    """One line of the list. ``engine`` is fpga, host, free or unknown; ``reason`` explains any other than fpga.

    ``numbers`` are those after the type; ``input`` and ``output`` are None if there are none. ``ms`` and ``macs`` are per image.
    """

    line: int
    type: str
    engine: str
    reason: str | None
    numbers: tuple[int, ...] = ()
    input: Shape | None = None
    output: Shape | None = None
    macs: int = 0
    cycles: int = 0
    ms: float = 0.0


def estimate(path: str | Path, overlay: Overlay) -> list[LineEstimate]:
    """Return a LineEstimate for every layer of a list, in order.

    Raises ParseError (with line and column) for an invalid list or layer, UsageError for an overlay without a time, and OSError.
    """
    if overlay.emulated:
        raise UsageError(
            f"overlay {overlay.name} exists on the emulator alone: its times are not modelled",
            hint=f"--overlay {default}, or another one of chai's",
        )
    text = decoded(content(path, "text_bytes"), path, "utf-8-sig")  # spreadsheets begin with a byte order mark
    source = SourceText(text, str(path))
    estimates, start = [], 0
    for number, line in enumerate(source.text.split("\n", limits().layers + 1), 1):
        if number > limits().layers:
            raise source.error(limits().exceeded("layers", source.text.count("\n")), start)
        cells = _cells(line, start)
        if cells:
            estimates.append(_estimate(source, number, cells, overlay))
        start += len(line) + 1
    if not estimates:
        raise ParseError("there is no layer in it", path=str(path), hint=HINT)
    return estimates


def write(estimates: Sequence[LineEstimate], path: str | Path) -> None:
    """Write CHaiDNN's result file: a line of type and milliseconds for every layer."""
    with complete(path) as part:
        part.write_text("".join(f"{e.type}, {e.ms:f}\n" for e in estimates), "utf-8")


class _Cell(NamedTuple):
    text: str
    start: int
    end: int


def _cells(line: str, start: int) -> list[_Cell]:
    """Return the cells of a line without blanks and quotes, and without the empty ones that spreadsheets append."""
    cells = []
    for text in line.split(",", _MOST + 1):  # the type, its numbers, and whatever follows
        bare = text.strip(' \t\r"')
        begin = start + text.index(bare)
        cells.append(_Cell(bare, begin, begin + len(bare)))
        start += len(text) + 1
    while cells and not cells[-1].text:
        cells.pop()
    return cells


def _estimate(source: SourceText, line: int, cells: list[_Cell], overlay: Overlay) -> LineEstimate:
    kind, rest = cells[0], cells[1:]
    if not re.fullmatch(r"\w{1,64}", kind.text):
        raise source.error(f"expected a layer type, found {kind.text[:40]!r}", kind.start, kind.end, HINT)
    if kind.text not in COLUMNS:
        return LineEstimate(line, kind.text, *_untimed(kind.text))
    sizes = _sizes(source, kind, rest)
    layer = _layer(kind.text, sizes)
    shape = (1, sizes["input channels"], sizes["input height"], sizes["input width"])
    try:
        out = _output(layer, shape, sizes)
        for blob in (shape, out):
            layer.check_top(blob)
        if max(map(count, layer.weight_shapes(shape)), default=0) > limits().blob_elements:
            raise layer.wrong("its weights are larger than any blob can be")
        reason = layer.unsupported(overlay, *[shape] * len(layer.bottoms))
    except ShapeError as error:
        raise source.error(error.message, kind.start, kind.end, error.hint) from error
    macs = layer.macs((shape,), (out,))
    taken = 0 if reason else _cycles(_task(layer, shape, out), overlay, {"in": shape, "out": out})
    ms = taken / overlay.clock_mhz / 1000
    return LineEstimate(
        line, kind.text, "host" if reason else "fpga", reason, tuple(sizes.values()), shape, out, macs, taken, ms
    )


def _cycles(task: Task, overlay: Overlay, shapes: dict[str, Shape]) -> int:
    """Return the modelled cycles; a layer with few channels is taken to read a network input, which may be unfolded."""
    if isinstance(task, Conv):
        task = task.joined(overlay)
        if (unfold := task.unfolding(overlay, shapes["in"])) is not None:
            task, shapes = task.unfolded(unfold, "in"), {**shapes, "in": unfold.shape(shapes["in"])}
    return task.cycles(overlay, shapes)


def _untimed(kind: str) -> tuple[str, str]:
    """Return engine and reason for a type without sizes."""
    if kind in FREE:
        return "free", "part of a neighbour"
    if kind in HOST:
        return "host", f"no {kind} unit"
    near = did_you_mean(kind, (*COLUMNS, *FREE, *HOST), quoted=False)
    return "unknown", f"no type {kind!r} is known" + (f", {near}" if near else "")


def _sizes(source: SourceText, kind: _Cell, cells: list[_Cell]) -> dict[str, int]:
    """Return the numbers of a line by the names of their columns."""
    columns = COLUMNS[kind.text]
    sizes = {}
    for column, cell in zip(columns, cells):
        least = 0 if column.startswith("pad") else 1
        if not re.fullmatch("[0-9]{1,5}", cell.text) or not least <= int(cell.text) <= SIZE:
            expected = f"{column}: expected a whole number from {least} to {SIZE}"
            raise source.error(f"{kind.text}: {expected}, found {cell.text[:40]!r}", cell.start, cell.end)
        sizes[column] = int(cell.text)
    if len(sizes) < len(columns):
        missing = ", ".join(columns[len(sizes) :])
        message = f"{kind.text} has {number_of(len(sizes), 'number')}, expected {len(columns)}"
        raise source.error(message, kind.start, kind.end, f"missing: {missing}")
    return sizes


def _layer(kind: str, sizes: Mapping[str, int]) -> Layer:
    """Return the layer that a line describes, which computes sizes, limits and multiply-accumulates."""
    if kind == "BN":
        return BatchNorm(kind, ("in",), ("out",))
    if kind == "ELTWISE":
        return Eltwise(kind, ("in", "in"), ("out",))
    window: Any = {
        f"{name}_{axis[0]}": sizes[f"{name} {axis}"] for name in ("kernel", "stride", "pad") for axis in _AXES
    }
    if kind in ("MAXPOOL", "AVEPOOL"):
        return Pooling(kind, ("in",), ("out",), Pooling.Params(kind[:3], **window))
    params = Convolution.Params(sizes["output channels"], **window, group=sizes["group"], dilation=(sizes["dilation"],))
    return Convolution(kind, ("in",), ("out",), params)


def _output(layer: Layer, shape: Shape, sizes: Mapping[str, int]) -> Shape:
    """Return the output's shape as listed. Raises ShapeError if the window cannot produce it."""
    computed = layer.shapes(*[shape] * len(layer.bottoms))[0]
    if "output height" not in sizes:
        return computed
    listed = (1, sizes["output channels"], sizes["output height"], sizes["output width"])
    low = high = computed
    if isinstance(layer, Pooling):
        # frameworks differ: rounded down, rounded up, or up as CHaiDNN does without dropping a window in the padding
        window = layer.window(shape)
        spans = [(shape[i + 2] + 2 * window.pad[i] - window.kernel[i], window.stride[i]) for i in range(2)]
        low = (*computed[:2], *(span // stride + 1 for span, stride in spans))
        high = (*computed[:2], *(-(-span // stride) + 1 for span, stride in spans))
    if not all(a <= b <= c for a, b, c in zip(low, listed, high)):
        raise layer.wrong(f"its output is listed as {show(listed)}; this window gives {show(computed)}")
    return listed


def _task(layer: Layer, shape: Shape, out: Shape) -> Task:
    """Return the layer as a Task with dummy weights: the model's time depends only on shapes."""
    io: Any = {"inputs": layer.bottoms, "output": layer.tops[0], "origin": layer.origin}
    r = Requantization(np.ones((1, 1, 1), np.int64), 0, -128, 127)
    if isinstance(layer, Pooling):
        return Pool(**io, window=layer.window(shape), out=(out[2], out[3]), requantization=None)
    if isinstance(layer, Eltwise):
        return Addition(**io, factors=(1, 1), negative=None, requantization=r, zeros=(0, 0))
    if isinstance(layer, Convolution):
        kind, weights, window, group = Conv, layer.weight_shapes(shape)[0], layer.window, layer.params.group
    else:
        kind, weights, window, group = Affine, (shape[1], 1, 1, 1), Window((1, 1), (1, 1), (0, 0)), shape[1]
    codes = np.broadcast_to(np.int8(0), weights)  # broadcast: one byte of memory
    return kind(**io, weights=codes, bias=np.zeros(1, np.int64), window=window, group=group, requantization=r)
