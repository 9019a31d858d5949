"""The operations of a network against the processor's roof, as numbers and as a picture.

Williams, Waterman and Patterson: Roofline, Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10, prod
from typing import TYPE_CHECKING, Any

from chai.passes.infer_shapes import infer_shapes
from chai.runtime.perf import PerfInfo, spread
from chai.util.html import colour, text

if TYPE_CHECKING:
    from chai.blob import Shape
    from chai.graph import Graph

    from .peak import Roof

CONVOLUTIONS = (
    "conv",
    "Convolution",
    "DepthwiseConvolution",
    "ConvolutionDepthwise",
)  # types of a Task and of layers on the host
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 980, 560, 70, 46, 250, 56  # pixels; labels are on the right
_LABELS, _LINE, _LETTERS = 10, 15, 28  # of the slowest operations: number, pixels of a line, characters of a name
_INK = 'stroke="#888" fill="none"'


@dataclass(frozen=True)
class Operation:
    """A step with products: of one pass its multiply-accumulates, the bytes it reads and writes once, and least ms."""

    name: str
    type: str
    engine: str
    macs: int
    bytes: int
    ms: float

    @property
    def intensity(self) -> float:
        """Return multiply-accumulates per byte."""
        return self.macs / self.bytes

    @property
    def rate(self) -> float:
        """Return 10^9 multiply-accumulates per second."""
        return self.macs / self.ms / 1e6


def operations(passes: Sequence[PerfInfo], graph: Graph, inputs: Mapping[str, Shape]) -> list[Operation]:
    """Return the steps with products of several passes of one network, whose inputs have these shapes.

    Bytes are of codes on the device, of float32 on the host, and count each input, weight and output once.
    """
    shapes = infer_shapes(graph, inputs)
    weights = {layer.name: sum(blob.size for blob in layer.blobs) for layer in graph.layers}
    drawn = []
    for steps in zip(*(one.steps for one in passes)):
        step = steps[0]
        if not step.macs:
            continue
        values = sum(prod(shapes.get(blob, ())) for blob in step.reads) + sum(weights.get(n, 0) for n in step.layers)
        size = step.bytes + values * (1 if step.engine == "fpga" else 4)
        drawn.append(Operation(step.name, step.type, step.engine, step.macs, size, min(s.ms for s in steps)))
    return drawn


def shares(passes: Sequence[PerfInfo], least: float, peak: float) -> dict[str, float]:
    """Return the share of ``peak`` (products per nanosecond) that the whole pass and its convolutions reach, 0 to 1.

    ``least`` is the least time of a pass in milliseconds, by the caller's clock; the convolutions' is the least sum of a pass.
    """
    one = passes[0]
    parts = {"whole": sum(step.macs for step in one.steps) / least / 1e6 / peak}
    products = sum(step.macs for step in one.steps if step.type in CONVOLUTIONS)
    if products:
        ms = spread([sum(step.ms for step in each.steps if step.type in CONVOLUTIONS) for each in passes]).min
        parts["convolutions"] = products / ms / 1e6 / peak
    return parts


def picture(operations: Sequence[Operation], roof: Roof, title: str) -> str:
    """Return the roofline as SVG: the operations as points, the peak and the bandwidths as lines, on logarithmic axes.

    An operation lies above a roof of bandwidth if its data are in a nearer cache, and above the peak if it computes less
    products than the layer has, as convolutions in tiles do.
    """
    rates = [roof.products, *(o.rate for o in operations)]
    places = [o.intensity for o in operations] or [1.0]
    left, right = floor(log10(min(places))), max(ceil(log10(max(places))), floor(log10(min(places))) + 1)
    low, high = floor(log10(min(rates))), ceil(log10(max(rates)))
    high = max(high, low + 1)

    def x(value: float) -> float:
        return _LEFT + (log10(value) - left) / (right - left) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - (log10(value) - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" '
        f'font-family="sans-serif" font-size="11"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _words(_LEFT, 20, title, 'font-size="14"'),
        _words(
            (_LEFT + _WIDTH - _RIGHT) / 2,
            _HEIGHT - 12,
            "multiply-accumulates per byte read and written",
            'text-anchor="middle"',
        ),
        _words(16, _HEIGHT / 2, "GMAC/s", f'text-anchor="middle" transform="rotate(-90 16 {_HEIGHT / 2:g})"'),
        *_grid(range(left, right + 1), range(low, high + 1), x, y),
        f'<line x1="{x(10**left):.1f}" x2="{x(10**right):.1f}" y1="{y(roof.products):.1f}" y2="{y(roof.products):.1f}" '
        'stroke="#000"/>',
        _words(x(10**left) + 4, y(roof.products) - 5, f"{roof.instructions}: {roof.products:.0f} GMAC/s"),
    ]
    for name, bytes in roof.bytes.items():  # rate = intensity * bytes, from the lower or left edge to the peak
        begin, end = max(10.0**left, 10.0**low / bytes), min(10.0**right, roof.products / bytes)
        if begin < end:
            ends = f'x1="{x(begin):.1f}" y1="{y(begin * bytes):.1f}" x2="{x(end):.1f}" y2="{y(end * bytes):.1f}"'
            parts.append(f'<line {ends} stroke="#000" stroke-dasharray="5 3"/>')
            middle = (begin * end) ** 0.5
            parts.append(_words(x(middle) + 5, y(middle * bytes) + 12, f"{name}: {bytes:.0f} GB/s"))
    most = max((o.ms for o in operations), default=1.0)
    for o in operations:
        radius = 3 + 7 * (o.ms / most) ** 0.5
        note = f"{o.name}: {o.ms:.3f} ms, {o.rate:.0f} GMAC/s, {o.intensity:.1f} MAC/byte"
        parts.append(
            f'<circle cx="{x(o.intensity):.1f}" cy="{y(o.rate):.1f}" r="{radius:.1f}" fill="{colour(o.engine)}" '
            f'fill-opacity="0.55"><title>{text(note)}</title></circle>'
        )
    slowest = sorted(sorted(operations, key=lambda o: -o.ms)[:_LABELS], key=lambda o: -o.rate)
    up = float(_TOP - _LINE)
    for i, o in enumerate(slowest):  # each below the one before, as near to its point as there is room
        up = min(max(up + _LINE, y(o.rate)), _HEIGHT - _BOTTOM - _LINE * (len(slowest) - 1 - i))
        ends = f'x1="{x(o.intensity):.1f}" y1="{y(o.rate):.1f}" x2="{_WIDTH - _RIGHT + 8}" y2="{up:.1f}"'
        name = o.name if len(o.name) <= _LETTERS else f"{o.name[: _LETTERS - 2]}.."
        parts.append(f'<line {ends} {_INK} stroke-opacity="0.6"/>')
        parts.append(_words(_WIDTH - _RIGHT + 10, up + 4, f"{o.ms:.2f} ms  {name}"))
    return "\n".join([*parts, "</svg>\n"])


def _grid(columns: Iterable[int], rows: Iterable[int], x: Any, y: Any) -> Iterable[str]:
    for power in columns:
        across = f"{x(10.0**power):.1f}"
        yield f'<line x1="{across}" x2="{across}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" {_INK} stroke-opacity="0.3"/>'
        yield _words(float(across), _HEIGHT - _BOTTOM + 16, f"{10.0**power:g}", 'text-anchor="middle"')
    for power in rows:
        up = f"{y(10.0**power):.1f}"
        yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up}" y2="{up}" {_INK} stroke-opacity="0.3"/>'
        yield _words(_LEFT - 6, float(up) + 4, f"{10.0**power:g}", 'text-anchor="end"')


def _words(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{text(words)}</text>'
