"""The options of a network: one table of names, types, defaults and meanings, which Net, commands and other calls derive from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from numbers import Integral
from os import PathLike
from typing import TYPE_CHECKING, Any

from ..blob import Shape
from ..errors import UsageError
from ..fixed import SCHEMES
from ..overlay import default as usual
from ..overlay.sections import LIMITS

if TYPE_CHECKING:
    from pathlib import Path

    from ..devices.base import Device
    from ..plugins.loading import Sources


PATH = (str, PathLike)


def option(
    default: Any,
    help: str = "",
    *,
    choices: Sequence[Any] = (),
    settled: bool = False,
    types: type | tuple[type, ...] = object,
) -> Any:
    """Return a field of ``Options``.

    ``help``      of the command-line option
    ``choices``   allowed values; none: any
    ``settled``   whether a .chai file has a value for it that cannot be changed
    ``types``     of its values; None is one, too, if the default is None or ""
    """
    return field(default=default, metadata={"help": help, "choices": choices, "settled": settled, "types": types})


@dataclass(frozen=True, eq=False, kw_only=True)
class Reading:
    """The options that say how the files of a network are read, for every function that opens one."""

    overlay: str | Path | None = option(
        None, f"overlay, see chai devices, or path of an overlay.json (default: {usual})", types=PATH
    )
    custom: Sources | None = option(None, "load custom layers from a file (.py, .xml) or folder and run its code")
    batch: int | None = option(None, "images per pass", types=Integral)
    phase: str = option("TEST", "phase of include and exclude rules", settled=True, types=str)
    level: int = option(0, settled=True, types=(Integral, type(None)))
    stages: Sequence[str] = option((), "add a stage of include and exclude rules", settled=True, types=Iterable)
    shapes: Mapping[str, Shape] | None = option(None, "set the size of an input, e.g. data=1x3x224x224", types=Mapping)
    strict: bool = option(False, "refuse fields outside Caffe's schema (default: warn)")
    jit: bool = option(True, "run custom layers as plain Python")
    detect: Mapping[str, Any] | str | None = option(
        None,
        "head of a detector, whose boxes become an output: its name, or keys of [detect]",
        settled=True,
        types=(Mapping, str),
    )

    @property
    def reading(self) -> dict[str, Any]:
        """Return these options as arguments of Net."""
        return {one.name: getattr(self, one.name) for one in fields(Reading)}


@dataclass(frozen=True, eq=False)
class Options(Reading):
    """The arguments of Net, which describes them."""

    prototxt: str | Path | bytes = option(MISSING, types=(*PATH, bytes))
    caffemodel: str | Path | None = option(None, types=PATH)
    device: str | Device | None = option(None, "device to run on, see chai devices")
    _: KW_ONLY
    keep: str | Sequence[str] = option("outputs", types=Iterable)
    engine: Mapping[str, str] | None = option(None, "choose the engine of a layer", types=Mapping)
    place: str | Path = option(
        LIMITS,
        "what runs on the overlay: all that its limits allow; or cost, the segments that are no faster on the board's "
        "processor by the manifest's host model; or by FILE of chai devices --measure",
        settled=True,
        types=PATH,
    )
    start_layer: str = option("", settled=True, types=str)
    end_layer: str = option("", settled=True, types=str)
    calibrate: Any = None
    bits: int = option(
        8,
        "width of the formats that chai chooses if the prototxt has no precision_param",
        choices=(8, 6),
        settled=True,
        types=Integral,
    )
    scheme: str | None = option(
        None,
        "thresholds (Xilinx) or powers of two (DynamicFixed) (default: the overlay's first: Xilinx if it has both)",
        choices=SCHEMES,
        settled=True,
        types=str,
    )
    autotune: bool = option(False, "time the implementations of custom layers once and use the fastest")

    def __post_init__(self) -> None:
        for one in fields(self):
            value, choices = getattr(self, one.name), one.metadata.get("choices")
            known = isinstance(value, one.metadata.get("types", object))
            if not known and not (value is None and one.default in (None, "")):
                raise UsageError(f"{one.name}: expected {one.type}, found {type(value).__name__}")
            if choices and value is not None and value not in choices:
                raise UsageError(f"{one.name} {value!r}: expected {' or '.join(map(str, choices))}")
            if isinstance(value, Integral) and not isinstance(value, int):  # numpy's: C and JSON take Python's alone
                object.__setattr__(self, one.name, int(value))

    def changed(self) -> Iterator[str]:
        """Yield the options that differ from their defaults, of those that a .chai file has a value for."""
        for one in fields(self):
            value = getattr(self, one.name)
            if one.metadata.get("settled") and (tuple(value) if one.name == "stages" else value) != one.default:
                yield one.name


TABLE = {one.name: one for one in fields(Options)}
