"""ArgMax in CHaiDNN-v2: the best class of each pixel of a Deconvolution, whose unit has one kernel for all classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..blob import Array, Shape
from ..errors import DeviceError
from ..overlay import TaskLimits
from ..overlay.records import pack_rows
from ..overlay.weights import ByteSource, Piece
from ..tasks import Task
from ..tasks.fields import Operands, as_it_is, clamp
from ..util.lazy_numpy import np

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..tasks.probe import Maker, Probe

LOWEST = -10000  # what a class has to exceed


@dataclass(frozen=True, eq=False)
class ArgMaxLimits(TaskLimits):
    """``input_max``: rows, and columns, of the input; ``pad_max``: of those that a Crop leaves out before the output."""

    kernel_max: int
    input_max: int
    pad_max: int


@dataclass(frozen=True, eq=False, repr=False)
class ChaidnnArgMax(Task):
    """The output's code is the class with the largest score, of equal ones the lowest; scores are exact in 32 bits.

    ``weights``  int16 (K, K), which every class has
    ``bias``     int16 (C,), in units of the sums
    ``stride``   rows, and columns, from pixel to pixel of the input: K is twice as many, or one less
    ``offset``   the first row and column that a Crop leaves
    ``out``      height and width of the output

    A pixel without a score above ``LOWEST`` has the class of the pixel two rows above, whose buffer its row has; in the first
    two rows class 0, where the unit has what the image before has left.

    A descriptor has the offset as padding. Its table has a record for each weight, row by row, then one for each class, with
    the number in the field "bias".
    """

    kind = "argmax"
    limit_type = ArgMaxLimits
    weights: Array
    bias: Array
    stride: int
    offset: tuple[int, int]
    out: tuple[int, int]

    def define(self, *codes: Array) -> Array:
        n, _, height, width = codes[0].shape
        (top, left), (rows, columns) = self.offset, self.out
        k, s = len(self.weights), self.stride
        whole = np.zeros((n, s * (height - 1) + k, s * (width - 1) + k), np.int8)
        for best, image in zip(whole, codes[0].astype(np.int32)):
            scores = np.zeros((len(image), *best.shape), np.int32) + self.bias.astype(np.int32).reshape(-1, 1, 1)
            for i in range(height):
                for j in range(width):
                    patch = scores[:, i * s : i * s + k, j * s : j * s + k]
                    patch += image[:, i, j].reshape(-1, 1, 1) * self.weights.astype(np.int32)
            classes, above = scores.argmax(0), scores.max(0) > LOWEST
            for row in range(len(best)):
                best[row] = np.where(above[row], classes[row], best[row - 2] if row > 1 else 0)
        return self.looked_up(whole[:, None, top : top + rows, left : left + columns])

    def demands(self, shapes: Mapping[str, Shape]) -> dict[str, int | bool | str]:
        return {"kernel": len(self.weights), "input": max(shapes[self.inputs[0]][2:]), "pad": max(self.offset)}

    def macs(self, *shapes: Shape) -> int:
        n, c, h, w = shapes[0]
        return int((self.images[1] if self.images else n) * c * h * w * self.weights.size)

    def fields(self, memory: Operands, where: int) -> dict[str, int]:
        source, k = memory.view(self.inputs[0]), len(self.weights)
        if self.weights.shape != (k, k) or self.bias.shape != (source.channels,):
            raise DeviceError(
                f"weights: {self.weights.shape} and {self.bias.shape} do not fit {source.channels} classes"
            )
        memory.check_output(self.output, (source.batch, 1, *self.out))
        values = {**source.input(), **memory.view(self.output).output(), **clamp(as_it_is())}
        values |= {"kernel_h": k, "kernel_w": k, "stride_h": self.stride, "stride_w": self.stride}
        return {**values, "pad_h": self.offset[0], "pad_w": self.offset[1], "table": where}

    def constants(self, memory: Operands) -> Sequence[Piece]:
        numbers = np.concatenate([self.weights.reshape(-1), self.bias]).astype(np.int64)
        zeros = np.zeros_like(numbers)
        return (ByteSource(pack_rows(memory.overlay.table, {"bias": numbers, "multiplier": zeros, "negative": zeros})),)

    @classmethod
    def records(cls, values: Mapping[str, int], output: Shape) -> int:
        del output
        return values["kernel_h"] ** 2 + values["input_channels"]

    @classmethod
    def from_fields(cls, values: Mapping[str, int], memory: Operands, /, **common: Any) -> Self:
        k, (_, _, h, w) = values["kernel_h"], memory.shape(common["output"])
        columns = memory.constants.table(memory.overlay, values["table"], cls.records(values, ()))
        numbers = columns["bias"]
        if columns["multiplier"].any() or columns.get("negative", np.zeros(1)).any():
            raise DeviceError("table: an argmax has no multipliers")
        if (numbers != numbers.astype(np.int16)).any():
            raise DeviceError("table: a weight or bias of an argmax has more than 16 bits")
        weights, bias = np.split(numbers.astype(np.int16), [k * k])
        offset = values["pad_h"], values["pad_w"]
        return cls(
            **common, weights=weights.reshape(k, k), bias=bias, stride=values["stride_h"], offset=offset, out=(h, w)
        )

    @classmethod
    def probes(cls, maker: Maker) -> Iterator[Probe]:
        """Yield both sizes of a kernel, and pixels where no class has a score above ``LOWEST``."""
        classes, (height, width), stride = 11, maker.size, 4
        for kernel, offset in ((2 * stride, (0, 0)), (2 * stride - 1, (3, 2))):
            whole = [stride * (side - 1) + kernel for side in (height, width)]
            out = whole[0] - 2 * offset[0], whole[1] - 2 * offset[1]
            shapes = {"x": (maker.batch, classes, height, width), "y": (maker.batch, 1, *out)}
            weights = maker.random.integers(-1200, 1200, (kernel, kernel)).astype(np.int16)
            bias = maker.random.integers(-15000, 1500, classes).astype(np.int16)
            task = cls(("x",), "y", ("argmax",), weights, bias, stride, offset, out)
            yield maker.probe(f"argmax {kernel}x{kernel}", task, maker.target(shapes, 1.0))
