"""Images a second from end to end, of the host and the overlay together: modelled, or measured on a board.

A network's passes in turn take the sum of both. In ``net.stream`` each has a thread, and the slower one decides: steps of the
host run in one, what starts segments and waits for them in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from ..overlay.host_model import FLUSH, LANES, LOAD, PASS, PICTURE, SEGMENT, STORE, HostModel

if TYPE_CHECKING:
    from .host_work import HostWork

PICTURE_SIZE = "640x480"
OF_THE_OVERLAY = (SEGMENT, STORE, LOAD, FLUSH)  # what the thread does in a stream that waits for the overlay
PARTS = {  # of a pass, with the kinds in each of the group driver; the others are groups or kinds
    "Pack": (),
    "Unpack": (),
    "host layers": (),
    "store, load": (STORE, LOAD),
    "driver": (SEGMENT, FLUSH),
    "between": (PASS, LANES),
}


class EndToEnd(TypedDict):
    """Least and most milliseconds of the host for an image, and images a second of host and overlay.

    ``amount`` is in the model's unit. ``overlapping`` is where host and overlay work on different images.
    """

    amount: int
    ms: list[float]
    images_per_second: list[float]
    overlapping: list[float]


class HostSpeed(TypedDict):
    """Figures of a board's host and overlay together: ``alone`` for inputs that are there, ``picture`` for a JPEG that is read.

    ``parts`` are the amount of an image by what it is for. ``guessed`` are layers of types that the model has no numbers for,
    ``left_out`` custom layers, whose time is not known.
    """

    measured: bool
    board: str | None
    machine: str
    processor: str
    unit: str
    clock_mhz: float | None
    cycles: list[float] | None
    assumed: list[str]
    parts: dict[str, int]
    alone: EndToEnd
    picture: EndToEnd | None
    guessed: list[str]
    left_out: list[str]


def host_speed(model: HostModel, work: Sequence[HostWork], images: int, fpga_ms: float, pictures: bool) -> HostSpeed:
    """Return the figures of a pass of so many images, whose segments take ``fpga_ms`` on the overlay.

    ``pictures`` tells whether a picture is what the network reads.
    """
    left_out = [one for one in work if one.custom and not model.knows(one.group, one.kind)]
    counted = [one for one in work if one not in left_out]
    parts = dict.fromkeys(PARTS, 0.0)
    for one in counted:
        part = one.kind.split()[0] if one.group == "conversions" else "host layers"
        if one.group == "driver":
            part = next(name for name, kinds in PARTS.items() if one.kind in kinds)
        parts[part] += model.amount(one.group, one.kind, one.counts)
    driver = [one for one in work if one.group == "driver"]  # a layer's type may have any name
    overlay = sum(model.amount(one.group, one.kind, one.counts) for one in driver if one.kind in OF_THE_OVERLAY)
    host = sum(parts.values()) - overlay
    around = next(one.counts for one in driver if one.kind == PASS)
    in_two = any(one.kind == LANES for one in driver)
    threads = 0.0 if in_two else model.amount("driver", LANES, {**around, "call": 0})  # which a stream has, too
    picture = model.amount("driver", PICTURE, {"call": images})

    def rates(more: float = 0.0) -> EndToEnd:
        whole = model.ms(host + overlay + more)
        lanes = zip(model.ms(host + threads + more), model.ms(overlay))
        slower = [max(of_host, of_overlay + fpga_ms) for of_host, of_overlay in lanes]
        return {
            "amount": round((host + overlay + more) / images),
            "ms": [ms / images for ms in whole],
            "images_per_second": [_rate(images, ms + fpga_ms) for ms in reversed(whole)],
            "overlapping": [_rate(images, ms) for ms in reversed(slower)],
        }

    return {
        "measured": model.measured,
        "board": model.board or None,
        "machine": model.machine,
        "processor": model.processor,
        "unit": model.unit,
        "clock_mhz": model.clock_mhz,
        "cycles": None if model.cycles is None else [*model.cycles],
        "assumed": [*model.assumed],
        "parts": {part: round(amount / images) for part, amount in parts.items()},
        "alone": rates(),
        "picture": rates(picture) if pictures and picture else None,
        "guessed": [one.name for one in counted if one.group == "layers" and not model.knows(one.group, one.kind)],
        "left_out": [one.name for one in left_out],
    }


def _rate(images: int, ms: float) -> float:
    return images * 1000 / ms if ms else 0.0
