"""Host models: numbers for each kind of step of a pass on a board's processor, in a manifest or in a measured file.

They are for printed figures. Plans depend on them only where the user asks for it, see ``placing``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from ..util.data import jsonfile
from ..util.data.jsonfile import Document, Pointer
from ..util.data.schema import validate
from ..util.paths import shipped
from .sections import COST, HOST_MODEL, LIMITS

if TYPE_CHECKING:
    from pathlib import Path


PASS, LANES, SEGMENT, STORE, LOAD, FLUSH, PICTURE = "pass", "lanes", "segment", "store", "load", "flush", "picture"
UNFOLDED = "Pack unfolded"
INSTRUCTIONS, NANOSECONDS = "instructions", "nanoseconds"
OTHERS = "others"  # layers of any type without numbers of its own
_CLOCKED = ("clock_mhz", "cycles")


class Span(NamedTuple):
    """The least and the most that a figure may be."""

    least: float
    most: float

    def __str__(self) -> str:
        least, most = (f"{number:.3g}" for number in self)
        return least if least == most else f"{least} to {most}"


@dataclass(frozen=True)
class HostModel:
    """Costs by group (driver, conversions, layers), kind and count, in its ``unit``; ``assumed`` figures were never measured.

    ``clock_mhz`` and ``cycles`` of an instruction are None where the unit is nanoseconds, which ``board`` measured.
    """

    machine: str
    processor: str
    unit: str
    assumed: tuple[str, ...]
    sources: Mapping[str, str]
    costs: Mapping[str, Mapping[str, Mapping[str, float]]]
    board: str = ""
    clock_mhz: float | None = None
    cycles: Span | None = None

    @property
    def measured(self) -> bool:
        """Return whether a board measured it."""
        return self.unit == NANOSECONDS

    def knows(self, group: str, kind: str) -> bool:
        """Return whether it has numbers for a kind of step."""
        return self._cost(group, kind) is not None

    def amount(self, group: str, kind: str, counts: Mapping[str, float]) -> float:
        """Return what a step takes; nothing for a kind of ``driver`` that is not there, ``others`` for a layer's."""
        cost = self._cost(group, kind) or self.costs[group].get(OTHERS, {})
        return sum(number * counts.get(name, 0) for name, number in cost.items())

    def _cost(self, group: str, kind: str) -> Mapping[str, float] | None:
        """Return the numbers of a kind, or of the kind that it is a form of: Pack for Pack unfolded. None without any."""
        kinds = self.costs[group]
        return kinds.get(kind, kinds.get(kind.partition(" ")[0]))

    def ms(self, amount: float) -> Span:
        """Return the milliseconds of an amount in its unit."""
        if self.clock_mhz is None or self.cycles is None:
            return Span(amount / 1e6, amount / 1e6)
        return Span(*(amount * cycles / self.clock_mhz / 1000 for cycles in self.cycles))


def of_manifest(path: str | Path) -> HostModel | None:
    """Return the host model of an overlay's manifest; None if it has none. Raises ParseError (with line) and OSError."""
    return of_document(jsonfile.load(path))


def of_document(document: Document) -> HostModel | None:
    """Return the host model in a manifest; None if it has none. Raises ParseError (with line)."""
    return _read(document, (HOST_MODEL,)) if HOST_MODEL in document.value else None


def load(path: str | Path) -> HostModel:
    """Return the host model in a file of ``chai devices --measure``. Raises ParseError (with line) and OSError."""
    return _read(jsonfile.load(path), ())


def placing(place: str | Path, manifest: str | Path) -> HostModel | None:
    """Return the host model that decides which segments the overlay of a manifest runs; None for all that its limits allow.

    ``place`` is limits, cost for the manifest's model, or a file of ``chai devices --measure``. Raises UsageError where there is
    none, ParseError (with line) and OSError.
    """
    if place == LIMITS:
        return None
    model = of_manifest(manifest) if place == COST else load(place) if os.path.exists(place) else None
    if model is None:
        absence = f"{manifest} has no {HOST_MODEL}" if place == COST else "there is no such file"
        hint = "chai devices --measure -o board.json, on the board, then board.json"
        raise UsageError(f"place {str(place)!r}: expected {LIMITS}, {COST} or a file; {absence}", hint=hint)
    return model


def _read(document: Document, at: Pointer) -> HostModel:
    schema = jsonfile.load(shipped("hw_overlays", f"{HOST_MODEL}.schema.json")).value
    validate(document, schema, at)
    value, name = (document.value[at[0]], at[0]) if at else (document.value, "the file")
    clocked = value["unit"] == INSTRUCTIONS
    for key in _CLOCKED:
        if clocked and key not in value:
            raise document.error(f"{name}: instructions take no time without the key {key!r}", at)
        if clocked and key not in value["sources"]:
            raise document.error(f"{name}: sources: it does not say where {key} is from", (*at, "sources"))
        if not clocked and key in value:
            raise document.error(f"{name}: {key} of nanoseconds, which are a time already", (*at, key), key=True)
    if clocked and not (len(value["cycles"]) == 2 and value["cycles"][0] <= value["cycles"][1]):
        raise document.error(f"{name}: cycles: expected two numbers, least and most", (*at, "cycles"))
    costs = {group: value[group] for group in ("driver", "conversions", "layers")}
    for group, kinds in costs.items():
        for kind, cost in kinds.items():
            if cost["source"] not in value["sources"]:
                message = f"{group}.{kind}: there is no source {jsonfile.quoted(cost['source'])}"
                hint = f"sources: {', '.join(value['sources'])}"
                raise document.error(message, (*at, group, kind, "source"), hint=hint)
    return HostModel(
        machine=value["machine"],
        processor=value["processor"],
        unit=value["unit"],
        assumed=tuple(value["assumed"]),
        sources=value["sources"],
        costs={
            group: {kind: {name: n for name, n in cost.items() if name != "source"} for kind, cost in kinds.items()}
            for group, kinds in costs.items()
        },
        board=value.get("board", ""),
        clock_mhz=float(value["clock_mhz"]) if clocked else None,
        cycles=Span(*map(float, value["cycles"])) if clocked else None,
    )


def layout(section: Mapping[str, Any], depth: int = 0) -> str:
    """Return a host model as JSON: a line for each cost."""
    tab = "  " * (depth + 1)

    def value(key: str, content: Any) -> str:
        if key in ("driver", "conversions", "layers", "sources"):
            lines = (f"{tab}  {json.dumps(kind)}: {json.dumps(cost)}" for kind, cost in content.items())
            return "{\n" + ",\n".join(lines) + f"\n{tab}}}"
        return json.dumps(content)

    lines = (f"{tab}{json.dumps(key)}: {value(key, content)}" for key, content in section.items())
    return "{\n" + ",\n".join(lines) + "\n" + "  " * depth + "}"
