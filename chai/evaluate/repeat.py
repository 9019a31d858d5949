"""Run one Task many times and compare the runs: a clock that is too fast, or a bad supply, shows as runs that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from time import perf_counter

from ..blob import Array
from ..devices.base import Device
from ..errors import DeviceError
from ..overlay import Overlay
from ..util.lazy_numpy import np
from .selftest import ProbeResult, TaskProbe, difference, probes

TIMES = 1000


class Repeat:
    """Runs of a probe: how many were ``right``, the different ``wrong`` outputs with their numbers, the ``error``."""

    def __init__(self, probe: TaskProbe, times: int) -> None:
        self.probe = probe
        self.times = times
        self.right = 0
        self.wrong = Counter[bytes]()
        self.error: DeviceError | None = None

    def run(self, device: Device, overlay: Overlay) -> Iterator[None]:
        """Run it ``times`` times, or until the device's first error; yield after each run."""
        self._begin = perf_counter()
        try:
            with closing(self.probe.compiled(device, overlay)) as program:
                for _ in range(self.times):
                    codes = self.probe.output(program)
                    if np.array_equal(codes, self.probe.expected):
                        self.right += 1
                    else:
                        self.wrong[codes.tobytes()] += 1
                    yield
        except DeviceError as error:
            self.error = error

    @property
    def runs(self) -> int:
        """The number of runs that ended."""
        return self.right + self.wrong.total()

    @property
    def differ(self) -> bool:
        """True if two runs gave different outputs."""
        return len(self.wrong) + bool(self.right) > 1

    @property
    def outputs(self) -> list[Array]:
        """The wrong outputs."""
        expected = self.probe.expected
        return [np.frombuffer(codes, expected.dtype).reshape(expected.shape) for codes in self.wrong]

    @property
    def reason(self) -> str:
        """A description of what was wrong, "" if nothing was."""
        if self.error:
            return f"after {self.runs:,} runs: {self.error}"
        if not self.wrong:
            return ""
        ways = f"in {len(self.wrong):,} ways" if len(self.wrong) > 1 else "all alike"
        return (
            f"{self.runs - self.right:,} of {self.runs:,} runs are wrong, {ways}; "
            f"one is {difference(self.outputs[0], self.probe.expected)}"
        )

    @property
    def result(self) -> ProbeResult:
        """All runs as one test."""
        name = f"{self.probe.name}, {self.times:,} times"
        return ProbeResult(name, not self.reason, self.reason, (perf_counter() - self._begin) * 1000)


def repeated(overlay: Overlay) -> list[TaskProbe]:
    """Return the probes to repeat: the first Task of each engine."""
    first: dict[str, TaskProbe] = {}
    for probe in probes(overlay):
        if isinstance(probe, TaskProbe):
            first.setdefault(probe.task.engine, probe)
    return list(first.values())
