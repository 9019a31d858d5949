"""Formats of a network's blobs on an overlay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ...fixed import Format
from ...graph import Graph
from ...util.log import logger
from ...util.paths import stem

if TYPE_CHECKING:
    from ...images.pictures import Feed
    from ...offload.headroom import Basis
    from ...offload.plan import Plan
    from ..renewing import Shown

log = logger("chai")


class NetworkFormats:
    """Formats that a network brings, or that are measured, ``bits`` wide in a ``scheme``; until then any, to show a schedule.

    ``by_blob``     None before there are any
    ``basis``       what they are based on, if they were measured
    ``calibrated``  whether they are final
    """

    def __init__(self, graph: Graph, bits: int, scheme: str) -> None:
        self._graph, self._bits, self._scheme = graph, bits, scheme
        self.by_blob: Mapping[str, Format] | None = None
        self.basis: Basis | None = None
        self.calibrated = False

    def choose(self, plan: Plan, batches: Iterable[Mapping[str, Feed]], asked: bool) -> Mapping[str, Shown]:
        """Set the final ones, see PrototxtSource.calibrate; ``plan`` is without formats."""
        from .. import measuring  # not needed by a float network

        choice = measuring.choose(self._graph, plan, batches, self._bits, self._scheme, not asked)
        self.by_blob, self.basis, self.calibrated = choice.formats, choice.basis, True
        name = self._graph.name or stem(self._graph.path)
        if self.basis is not None:
            more = f"; {self.basis.advice}" if self.basis.advice else ""
            (log.info if asked else log.warning)("%s brings no formats: %s%s", name, self.basis, more)
        elif signed := measuring.unsigned_dropped(plan):
            text = "%s: overlay %s has no unsigned codes; %d blobs are signed, in steps twice as wide"
            log.warning(text, name, plan.overlay.name, signed)
        return choice.shown

    def preview(self, plan: Plan, trained: bool) -> None:
        """Set some to show a schedule with: the network's own, which are final if it is ``trained``, or any."""
        from .. import measuring

        self.by_blob, own = measuring.placeholders(plan, self._bits, self._scheme)
        self.calibrated = own and trained
