"""Where the time of a forward pass went."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepTime:
    """One step: its layer, what ran it, milliseconds, multiply-accumulates and bytes written (both per pass).

    ``reads`` and ``writes`` are blob ids; a Pack or Unpack reads and writes the same one. ``begin`` is in milliseconds
    from the start of the pass.
    """

    name: str
    type: str
    engine: str
    ms: float
    macs: int
    bytes: int
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    begin: float = 0.0


@dataclass(frozen=True)
class PerfInfo:
    """The steps of the last forward pass, in order; ``wall_ms`` is the whole pass, ``batch`` its images."""

    steps: tuple[StepTime, ...] = ()
    wall_ms: float = 0.0
    batch: int = 1
    peak_bytes: int = field(default=0)  # activations alive at once
    blob_bytes: int = field(default=0)  # all activations together

    @property
    def custom(self) -> tuple[StepTime, ...]:
        """The steps that a custom layer took."""
        return tuple(s for s in self.steps if s.engine == "custom")

    @property
    def images_per_second(self) -> float:
        """Throughput of this pass; 0 before the first one."""
        return self.batch * 1000 / self.wall_ms if self.wall_ms else 0.0

    def to_json(self) -> dict[str, Any]:
        """Numbers and names only, ready for json.dumps."""
        return {**asdict(self), "steps": [asdict(s) for s in self.steps], "images_per_second": self.images_per_second}

    def rows(self) -> Iterator[tuple[str, str, str, str, str, str]]:
        """Cells of the latency table: step, type, engine, ms, share, MACs per second."""
        total = sum(s.ms for s in self.steps) or 1.0
        for s in self.steps:
            rate = f"{s.macs / s.ms / 1e6:.1f} G" if s.macs and s.ms else "-"
            yield s.name, s.type, s.engine, f"{s.ms:.3f}", f"{100 * s.ms / total:.1f}", rate

    def conversions(self, step: StepTime) -> tuple[float, float]:
        """Milliseconds spent unpacking a step's inputs and packing its outputs; 0 where nothing is converted."""
        unpack = sum(s.ms for s in self.steps if s.type == "Unpack" and not set(s.writes).isdisjoint(step.reads))
        pack = sum(s.ms for s in self.steps if s.type == "Pack" and not set(s.reads).isdisjoint(step.writes))
        return unpack, pack

    def chaidnn(self) -> str:
        """CHaiDNN's report."""
        lines = [f"[INFOx] Total Number of Custom layers : {len(self.custom)}", ""]
        for i, step in enumerate(self.custom, 1):
            unpack, pack = self.conversions(step)
            lines += [
                f"[INFOx] Custom Layer - {i} : {step.name}",
                f"[PERFM] Unpack layer Latency : {unpack:f} ms",
                f"[PERFM] Custom layer Latency : {step.ms:f} ms",
                f"[PERFM] Pack   layer Latency : {pack:f} ms",
                "",
            ]
        return "\n".join(lines)

    def __str__(self) -> str:
        from .table import plain

        head = ("step", "type", "engine", "ms", "%", "MACs/s")
        steps = sum(s.ms for s in self.steps)
        foot = (
            f"total of steps {steps:.3f} ms   wall {self.wall_ms:.3f} ms   {self.images_per_second:.2f} images/second"
        )
        return plain(head, list(self.rows()), "lllrrr") + "\n" + foot


def getPerfInfo(net: Any) -> PerfInfo:  # noqa: N802 - CHaiDNN's name
    """Print CHaiDNN's report of the custom layers of the last forward pass to stderr; return everything measured."""
    perf: PerfInfo = net.perf
    print(perf.chaidnn(), file=sys.stderr)
    return perf
