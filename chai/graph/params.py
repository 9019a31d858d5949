"""Declare a layer's parameters.

A layer's ``Params``, inside its class, are MessageFields with the names of Caffe's ``*_param`` message and Caffe's defaults.
None means "not set" where Caffe checks ``has_...``; repeated fields are tuples. The parser fills it by reflection and
checks the declared ranges, so a layer never sees a value outside them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):  # for checkers of types alone; in ``typing`` since Python 3.11
        return lambda cls: cls


SIZE = 65_535  # largest kernel, stride, dilation, group or pad that is accepted
EXACT = "exact"  # type of a filler of chai's own: a constant that must not be random, such as a variance


def within(low: float, high: float, default: Any = None) -> Any:
    """Declare a number, or repeated numbers (default ``()``), from ``low`` to ``high``."""
    return field(default=default, metadata={"within": (low, high)})


def size(default: Any = None) -> Any:
    """Declare a length in elements, at least 1."""
    return within(1, SIZE, default)


def margin(default: Any = None) -> Any:
    """Declare a padding in elements, at least 0."""
    return within(0, SIZE, default)


def axis_index(default: int | None) -> Any:
    """Declare an axis; negative values count from the last."""
    return within(-32, 31, default)


def choice(*allowed: str, default: str | None) -> Any:
    """Declare an enum with the values that this layer implements; others in the schema are refused by name."""
    return field(default=default, metadata={"choice": allowed})


def nested(cls: type, *, repeated: bool = False) -> Any:
    """Declare a nested message, filled into ``cls``."""
    return field(default=() if repeated else None, metadata={"nested": cls})


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class MessageFields:
    """Base of what a message is filled into: each class is a frozen dataclass. By itself the parameters of types without any."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class BlobShape(MessageFields):
    """Caffe's BlobShape; the range allows Reshape's 0 (copy) and -1 (infer)."""

    dim: tuple[int, ...] = within(-1, 2**31 - 1, ())


class Filler(MessageFields):
    """The fields of Caffe's FillerParameter that are needed to draw random weights."""

    type: str = "constant"
    value: float = 0.0
    min: float = 0.0
    max: float = 1.0
    mean: float = 0.0
    std: float = 1.0


class LossParams(MessageFields):
    """Caffe's loss_param: a label that does not count, and the divisor of the sum. The last field is SegNet's."""

    ignore_label: int | None = None
    normalize: bool | None = None
    normalization: str | None = choice("FULL", "VALID", "BATCH_SIZE", "NONE", default=None)
    weight_by_label_freqs: bool = False
