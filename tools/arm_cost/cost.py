"""Instructions of a pass: medians of the rows, sums by part, and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from chai.report.host_work import Row
from chai.util.table import plain

PARTS = {  # of a pass, with the kinds of row in each; all other rows are layers on the host
    "Pack": ("pack",),
    "Unpack": ("unpack",),
    "host layers": (),
    "store, load": ("store", "fetch"),
    "driver": ("driver",),
    "between": ("feed", "between", "call", "lanes"),
}
NAMED = {kind: part for part, kinds in PARTS.items() for kind in kinds}
MARKS = "<!-- instructions: python -m tools.arm_cost --table -->", "<!-- end of instructions -->"


@dataclass(frozen=True)
class Cost:
    """Instructions of each row of a network's pass, or of reading a picture, on a machine."""

    network: str
    machine: str
    cpu: str
    overlay: str
    images: int
    rows: tuple[Row, ...]

    @property
    def sum(self) -> int:
        """Return the instructions of all rows."""
        return sum(number for *_, number in self.rows)

    def parts(self) -> dict[str, int]:
        """Return the instructions of each part of a pass; none of a picture."""
        if [kind for kind, *_ in self.rows] == ["picture"]:
            return {}
        sums = dict.fromkeys(PARTS, 0)
        for kind, _, number in self.rows:
            sums[NAMED.get(kind, "host layers")] += number
        return sums

    def text(self) -> str:
        """Return the rows as a table, with the parts and their sum below."""
        rows = [(kind, name, millions(number)) for kind, name, number in self.rows]
        parts = [(part, millions(number)) for part, number in (*self.parts().items(), ("sum", self.sum)) if number]
        return "\n\n".join(
            (
                f"{self.network} for overlay {self.overlay} on {self.machine} ({self.cpu}), images: {self.images}",
                plain(("kind", "name", "million instructions"), rows, "llr"),
                plain(("part", "million instructions"), parts, "lr"),
            )
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of --json."""
        rows = [dict(zip(("kind", "name", "instructions"), row)) for row in self.rows]
        return {**asdict(self), "rows": rows, "parts": self.parts(), "instructions": self.sum}


def millions(number: int) -> str:
    """Return a number in millions, to two digits below 1 and one digit after the point above."""
    return f"{number / 1e6:.1f}" if number >= 1e6 else f"{number / 1e6:.2f}"


def markdown(costs: Iterable[Cost], pictures: Iterable[Cost]) -> str:
    """Return the table of docs/board.md: a row for each network and machine, and for each picture."""
    rows = [(f"`{cost.network}`", cost.machine, [*cost.parts().values()], cost.sum) for cost in costs]
    rows += [(f"JPEG, {cost.rows[0][1]}", cost.machine, [], cost.sum) for cost in pictures]
    lines = ["| " + " | ".join(("network", "machine", *PARTS, "sum")) + " |", "|---|---|" + "---:|" * (len(PARTS) + 1)]
    for name, machine, parts, total in rows:
        cells = [millions(number) for number in parts] or [""] * len(PARTS)
        lines.append(f"| {' | '.join((name, machine, *cells))} | **{millions(total)}** |")
    return "\n".join(lines)


def replaced(page: str, table: str, marks: tuple[str, str] = MARKS) -> str:
    """Return a page with another table, or other text, between the marks. Raises ValueError for a page without them."""
    begin, end = marks
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise ValueError(f"the page lacks {begin} or {end}")
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"
