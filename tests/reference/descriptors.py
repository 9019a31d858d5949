"""What descriptors do to the bytes of a memory, by the words of hw_overlays/README.md.

Nothing of chai computes here: the manifest's tables say where a field is, addresses in descriptors say where codes are, and
sums are numpy's, in float64 where it is exact. Only the counts of descriptors keep the two engines in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from random import Random
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from chai.overlay import Overlay

from . import engines

Array = np.ndarray
Values = dict[str, int]
WORD = 8  # codes
SEGMENTS, SEGMENT = 512, 8  # of an LRN's table, and bytes of one
STEPS = 5  # in which a Task writes


class Memory:
    """Bytes at addresses: regions that are apart, so what is accessed beyond one is found."""

    def __init__(self, regions: Mapping[int, Array]) -> None:
        self.regions = regions

    def at(self, address: int, size: int) -> Array:
        for first, data in self.regions.items():
            if first <= address and address + size <= first + len(data):
                return data[address - first :][:size]
        raise AssertionError(f"{size} bytes at {address:#x} are in no region")

    def codes(self, address: int, shape: Sequence[int], apart: Sequence[int]) -> Array:
        """A view of codes so many bytes apart, along each axis."""
        size = sum((count - 1) * step for count, step in zip(shape, apart)) + 1
        return as_strided(self.at(address, size).view(np.int8), shape, apart)

    def planes(self, address: int, shape: Sequence[int], image: int, pitch: int, row: int) -> Array:
        """A view (N, planes, H, W, codes of a word) of channels; ``row``: words from row to row."""
        n, c, h, w = shape
        return self.codes(address, (n, -(-c // WORD), h, w, WORD), (image, pitch, row * WORD, WORD, 1))

    def records(self, fields: Any, bytes: int, address: int, count: int) -> dict[str, Array]:
        """The values of some records, by the fields' names."""
        words = self.at(address, count * bytes).view("<u4").reshape(count, -1).astype(object)
        whole = sum(words[:, i] << 32 * i for i in range(bytes // 4))
        columns = {}
        for name, word, bit, width, signed in fields:
            bits = whole >> 32 * word + bit & (1 << width) - 1
            columns[name] = (bits - ((bits >> width - 1) << width) * signed).astype(object)
        return columns


def run(overlay: Overlay, memory: Memory, address: int, count: int, random: Random) -> None:
    """Run a chain in some order that its counts allow."""
    fields = [(f.name, f.word, f.bit, f.width, f.signed) for f in overlay.descriptor.fields]
    columns = memory.records(fields, overlay.descriptor.bytes, address, count)
    chain: list[Values] = [{name: int(column[i]) for name, column in columns.items()} for i in range(count)]
    assert [values["tag"] for values in chain] == list(range(count))
    names = [engines.engine(values, overlay) for values in chain]
    held = shares = 0  # the address of the weights in the array's buffer
    for values, name in zip(chain, names):
        if name == "array":
            values["weights"] = held = held if shares else values["weights"]
            shares = values.get("shares", 0)
    choose = random.choice([random.choice, engines.delaying(random.randrange(count))])
    work = lambda i: DescribedTask(overlay, memory, chain[i]).steps(random.random() < 0.5)  # noqa: E731
    for _ in engines.run(names, [engines.after(values) for values in chain], work, choose, random.choice([1, 4, inf])):
        pass


class DescribedTask:
    """A Task of which nothing is known but its descriptor."""

    def __init__(self, overlay: Overlay, memory: Memory, values: Values) -> None:
        self.overlay, self.memory = overlay, memory
        self.v = {"input_row": 0, "output_row": 0, "lookup": 0, "vector": 0, "spread": 0, "operation": 0} | values
        self.kind = next(s.kind for s in overlay.tasks if dict(s.limits)["opcode"] == values["opcode"])
        self.zero = self.zero_of("input")
        self.source = tuple(values[name] for name in ("batch", "input_channels", "input_height", "input_width"))
        self.target = tuple(values[f"output_{name}"] for name in ("channels", "height", "width"))

    def steps(self, late: bool) -> Iterator[None]:
        """Read and write: first all inputs, at once or ``late``, then some rows of the output at a time."""
        if late:
            yield
        result = getattr(self, "conv" if self.kind == "affine" else self.kind)(*self.inputs())
        yield
        n, c, h, w = result.shape
        words = np.zeros((n, -(-c // WORD) * WORD, h, w), np.int8)
        words[:, :c] = result
        v = self.v
        into = self.memory.planes(v["output"], result.shape, v["output_image"], v["output_pitch"], v["output_row"] or w)
        if engines.engine(v, self.overlay) == "window":
            assert (v["tile_columns"] or v["output_pitch"] // WORD) == h * w
        rows = list(np.ndindex(into.shape[:3]))
        for k in range(STEPS):
            for i, plane, row in rows[k::STEPS]:
                into[i, plane, row] = words[i, plane * WORD :, row][:WORD].T
            yield

    def inputs(self) -> list[Array]:
        """The codes of its inputs, int64: copies of what is in memory now."""
        v, second = self.v, self.source
        if self.kind == "interleave":
            places = [v[name] + i * v["weights_block"] for i in range(v["stride_h"]) for name in ("input", "second")]
            return [self.read(place, (v["batch"], self.target[0], *self.source[2:])) for place in places]
        first = self.read(v["input"], self.source)
        if self.kind != "eltwise":
            return [first]
        if v["vector"]:
            second = (*self.source[:2], 1, 1)
        return [first - self.zero, self.read(v["second"], second, "second") - self.zero_of("second")]

    def read(self, address: int, shape: Sequence[int], name: str = "input") -> Array:
        n, c, h, w = shape
        pitch = WORD if (h, w) != self.source[2:] else self.v["input_pitch"]
        if engines.engine(self.v, self.overlay) == "window" and pitch > WORD:
            assert (self.v["tile_rows"] or pitch // WORD) == h * w
        words = self.memory.planes(address, shape, self.v[f"{name}_image"], pitch, self.v["input_row"] or w)
        return words.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c].astype(np.int64)

    # -- arithmetic

    def zero_of(self, blob: str) -> int:
        return -128 if self.v.get(f"{blob}_zero") else 0

    def code(self, value: Array) -> Array:
        """Shift, rounding halves away from zero; add the zero point; clamp."""
        shift = self.v["shift"]
        half = 1 << shift >> 1
        value = np.where(value < 0, -((half - value) >> shift), (value + half) >> shift)
        return np.clip(value + self.zero_of("output"), self.v["low"], self.v["high"])

    def bent(self, value: Array, above: Any, below: Any) -> Array:
        """The codes of sums times a factor, negative ones times another if the Task is leaky."""
        return self.code(value * (np.where(value < 0, below, above) if self.v["leaky"] else above))

    def table(self, count: int, *shape: int) -> dict[str, Array]:
        record = self.overlay.table
        fields = [(f.name, f.word, f.bit, f.width, f.signed) for f in record.fields if f.name != "version"]
        columns = self.memory.records(fields, record.bytes, self.v["table"], count)
        return {name: column.astype(np.int64).reshape(shape) for name, column in columns.items()}

    def looked_up(self, codes: Array, records: int = 0) -> Array:
        if not self.v["lookup"]:
            return codes
        where = self.v["table"] + records * self.overlay.table.bytes
        return self.memory.at(where, 256).view(np.int8)[codes + 128]

    # -- kinds

    def conv(self, x: Array) -> Array:
        v, (m, oh, ow), c = self.v, self.target, self.source[1]
        size, group, kernel = self.overlay.array, v["group"], (v["kernel_h"], v["kernel_w"])
        assert v["tiles"] == -(-oh // v["tile_rows"]) * -(-ow // v["tile_columns"])
        if group == c == m:
            blocks = self.blocks(-(-m // size.inputs), *kernel, size.inputs)
            weights = blocks.transpose(0, 3, 1, 2).reshape(1, -1, 1, *kernel)[:, :m]
            weights = weights.reshape(m, 1, 1, *kernel)
        else:
            outputs, inputs = -(-(m // group) // size.outputs), -(-(c // group) // size.inputs)
            blocks = self.blocks(group * outputs, inputs, *kernel, size.inputs, size.outputs)
            weights = blocks.transpose(0, 5, 1, 4, 2, 3).reshape(group, -1, inputs * size.inputs, *kernel)
            weights = weights[:, : m // group, : c // group]
        codes = self.filtered(x, weights, (v["dilation_h"], v["dilation_w"]))
        return self.pooled(codes) if v.get("pooled_width") else codes

    def blocks(self, *shape: int) -> Array:
        """Weights in blocks that are ``weights_block`` bytes apart."""
        count, *block = shape
        size = int(np.prod(block))
        assert self.v["weights_block"] == size
        return self.memory.codes(self.v["weights"], (count, size), (size, 1)).reshape(shape)

    def depthwise(self, x: Array) -> Array:
        c = self.source[1]
        taps = self.memory.at(self.v["weights"], -(-c // WORD) * 9 * WORD).view(np.int8).reshape(-1, 3, 3, WORD)
        return self.filtered(x, taps.transpose(0, 3, 1, 2).reshape(-1, 1, 1, 3, 3)[:c])

    def filtered(self, x: Array, weights: Array, dilation: Sequence[int] = (1, 1)) -> Array:
        """Sums with weights (groups, outputs, inputs, height, width) of each group, requantised."""
        v, (m, oh, ow), (n, c, h, w) = self.v, self.target, self.source
        group, _, _, kh, kw = weights.shape
        (sh, sw), (ph, pw) = ([v[f"{name}_{axis}"] for axis in "hw"] for name in ("stride", "pad"))
        down, right = (oh - 1) * sh + (kh - 1) * dilation[0] + 1, (ow - 1) * sw + (kw - 1) * dilation[1] + 1
        around = np.full((n, c, max(down, h + ph), max(right, w + pw)), self.zero, np.float64)
        around[:, :, ph : ph + h, pw : pw + w] = x
        sums = np.zeros((n, group, m // group, oh * ow))
        for i, j in np.ndindex(kh, kw):
            top, left = i * dilation[0], j * dilation[1]
            seen = around[:, :, top : top + (oh - 1) * sh + 1 : sh, left : left + (ow - 1) * sw + 1 : sw]
            sums += weights[..., i, j].astype(np.float64) @ seen.reshape(n, group, c // group, oh * ow)
        table = self.table(m, m, 1, 1)
        total = sums.reshape(n, m, oh, ow).astype(np.int64) + table["bias"]
        bits = self.overlay.wide_bits if v.get("wide") else self.overlay.accumulator_bits
        assert np.abs(total).max() < 1 << (bits or 0) - 1, f"a sum of more than {bits} bits"
        return self.looked_up(self.bent(total, table["multiplier"], table["negative"]), m)

    def pooled(self, codes: Array) -> Array:
        """The largest code of each window; there are no codes beyond the last windows."""
        v, (h, w) = self.v, codes.shape[2:]
        kernel, stride, pad, over = (
            [v[f"pool_{name}_{axis}"] for axis in "hw"] for name in ("kernel", "stride", "pad", "over")
        )
        rows, columns = (divmod(size + pad[i] + over[i] - kernel[i], stride[i]) for i, size in enumerate((h, w)))
        assert not rows[1] and columns == (v["pooled_width"] - 1, 0)
        return self.windows(codes, kernel, stride, pad, (rows[0] + 1, columns[0] + 1), np.max)

    def windows(
        self, x: Array, kernel: Any, stride: Any, pad: Any, size: tuple[int, int], of: Callable[..., Array]
    ) -> Array:
        result = np.empty((*x.shape[:2], *size), np.int64)
        for i, j in np.ndindex(size):
            top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
            part = x[:, :, max(top, 0) : max(top + kernel[0], 0), max(left, 0) : max(left + kernel[1], 0)]
            result[:, :, i, j] = of(part, axis=(2, 3), initial=-128 if of is np.max else 0)
        return result

    def pool(self, x: Array) -> Array:
        v, size = self.v, self.target[1:]
        kernel, stride, pad = ([v[f"{name}_{axis}"] for axis in "hw"] for name in ("kernel", "stride", "pad"))
        if (*kernel, *pad) == (*self.source[2:], 0, 0):
            assert size == (1, 1), "a window over all of the image is the only one"
        if not v["average"]:
            return self.looked_up(self.code(self.windows(x, kernel, stride, pad, size, np.max)))
        count = size[0] * size[1]
        table = self.table(count, *size)
        sums = self.windows(x, kernel, stride, pad, size, np.sum) + table["bias"]
        return self.looked_up(self.bent(sums, table["multiplier"], table["negative"]), count)

    def eltwise(self, x: Array, z: Array) -> Array:
        v = self.v
        if v["operation"] == 1:
            return self.looked_up(self.code(x * z * v["factor"]))
        if v["operation"] == 2:
            return self.code(np.maximum(x * v["factor"], z * v["second_factor"]))
        total = x * v["factor"] + z * v["second_factor"]
        if v["leaky"]:
            total = np.where(total < 0, x * v["negative"] + z * v["second_negative"], total)
        return self.looked_up(self.code(total))

    def copy(self, x: Array) -> Array:
        (n, c), (m, h, w) = x.shape[:2], self.target
        if (h, w) != x.shape[2:]:  # the words keep their order
            words = x.reshape(n, c // WORD, WORD, -1).transpose(0, 1, 3, 2).reshape(n, m // WORD, h * w, WORD)
            x = words.transpose(0, 1, 3, 2)
        x = x.reshape(n, m, h, w)
        return self.looked_up(self.bent(x - self.zero, self.v["factor"], self.v["negative"]))

    def upsample(self, x: Array) -> Array:
        v, (m, h, w) = self.v, self.target
        rows, columns = v["stride_h"], v["stride_w"]
        assert v["tiles"] == -(-m // WORD) * x.shape[2] and (h, w) == (x.shape[2] * rows, x.shape[3] * columns)
        copies = self.code((x - self.zero) * v["factor"]).repeat(rows, 2).repeat(columns, 3)
        if v["spread"]:
            alone = (np.arange(h) % rows == 0)[:, None] & (np.arange(w) % columns == 0)
            copies = np.where(alone, copies, self.code(np.array(0)))
        return self.looked_up(copies)

    def interleave(self, *parts: Array) -> Array:
        v, (m, h, w) = self.v, self.target
        assert v["tiles"] == -(-m // WORD) * parts[0].shape[2]
        result = np.empty((v["batch"], m, h, w), np.int64)
        for k, part in enumerate(parts):
            result[:, :, k // 2 :: v["stride_h"], k % 2 :: v["stride_w"]] = part
        return self.looked_up(self.code(result * v["factor"]))

    def lrn(self, x: Array) -> Array:
        x, half = x - self.zero, self.v["kernel_h"] // 2
        fields = ("base", 0, 0, 18, False), ("slope", 1, 0, 18, True)
        table = self.memory.records(fields, SEGMENT, self.v["table"], SEGMENTS)
        base, slope = table["base"].astype(np.int64), table["slope"].astype(np.int64)
        sums = np.stack([(x[:, max(k - half, 0) : k + half + 1] ** 2).sum(1) for k in range(x.shape[1])], 1)
        octave = np.maximum(np.frexp(sums)[1] - 1, 5)  # 2 ** octave to twice that has 32 segments
        width = octave - 5
        segment = (sums >> width) + 32 * width
        rest = (sums - (sums >> width << width)) << (14 - width)
        return self.code(x * (base[segment] + ((slope[segment] * rest + (1 << 13)) >> 14)))
