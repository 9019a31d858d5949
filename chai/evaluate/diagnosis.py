"""Say in words what is probably wrong with a board that has failed the self test, from how it fails when asked again."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from ..blob import Array
from ..devices.base import Device
from ..driver.registers import Late, Stopped
from ..overlay import Overlay
from ..util.lazy_numpy import np
from .selftest import NetworkProbe, ProbeResult, Repeat, TaskProbe, failure, probes

AGAIN = 20  # runs of each experiment
GROUP = 4  # bytes: half a beat of a memory port
LANES = 4  # groups of the widest port
MANY = 0.25  # of the wrong groups are elsewhere in memory: chance finds none
ALL, NONE = 0.9, 0.1  # of the bytes of a lane are wrong

NEVER = (
    "the registers answer, and a Task starts but never ends: a memory port does not. Does the accelerator's clock also drive "
    "every S_AXI_HP port, and are their resets released?"
)
WIDTH = (
    "words of memory arrive moved or in part: a memory port has another width than its design. Use the .hwh of this "
    "bitstream's build, and a boot file that sets the port (S_AXI_HPn: 64 bits)"
)
READS = (
    "the accelerator refuses what it reads from memory: descriptors do not arrive as they were written. Has port m0 the "
    "width of its design (S_AXI_HP0: 64 bits), and are caches flushed by this image's pynq?"
)
TIMING = (
    "bit errors that differ from run to run, as of a clock that is too fast for this build. Read reports/timing.rpt, and build "
    "with a slower --clock; if timing is met, look at supply and cooling"
)
SAME = (
    "the same wrong codes in every run, so it is neither clock nor supply: a design of other sources than this overlay.json, "
    "a memory port of another width, or caches that this image's pynq does not flush"
)
CHAINS = (
    "each Task alone is right and a chain of them is not: a Task starts before the one that it needs has written, or "
    "waits for ever"
)


def diagnose(
    device: Device, overlay: Overlay, results: Sequence[ProbeResult], checks: Sequence[ProbeResult]
) -> list[str]:
    """Return sentences on what is probably wrong; none if nothing has failed.

    ``results`` are those of Tasks and networks, ``checks`` what the device says of itself: a reason there explains the rest.
    """
    known = [check.reason for check in checks if not check.ok]
    failed = {result.name for result in results if not result.ok}
    if failed and not any(check.name != "interrupt" for check in checks if not check.ok):
        known.insert(0, _experiments(device, overlay, failed))
    return known


def _experiments(device: Device, overlay: Overlay, failed: set[str]) -> str:
    """Return the sentence that fits how what has failed does when it is run again."""
    every = probes(overlay)
    tasks = [probe for probe in every if isinstance(probe, TaskProbe)]
    wrong = [probe for probe in tasks if any(name.startswith(probe.name) for name in failed)]
    if not wrong:
        networks = [probe for probe in every if isinstance(probe, NetworkProbe) and probe.name in failed]
        return CHAINS if all(failure(probe, device, overlay) for probe in networks) else TIMING
    copies = [probe for probe in tasks if probe.task.as_view()][:1]
    runs = [Repeat(probe, AGAIN) for probe in (wrong[0], *copies)]
    for run in runs:
        deque(run.run(device, overlay), 0)  # to its end
    errors = [run.error for run in runs if run.error]
    if any(moved(overlay, run) for run in runs[1:]):
        return WIDTH
    if any(isinstance(error, Late) for error in errors):
        return NEVER
    if any(isinstance(error, Stopped) for error in errors):
        return READS
    if errors:
        return str(errors[0])
    return TIMING if any(run.differ for run in runs) or not runs[0].wrong else SAME


def moved(overlay: Overlay, copy: Repeat) -> bool:
    """Return whether the wrong outputs of a copy have its words in other places, or those of some lanes of a port wrong."""
    expected = _groups(overlay, copy.probe.expected)
    for output in copy.outputs:
        actual = _groups(overlay, output)
        wrong = actual != expected
        if not wrong.any():  # only the channels after the last full plane are
            continue
        if np.isin(actual[wrong], expected).mean() > MANY:
            return True
        bytes = actual.view(np.uint8) != expected.view(np.uint8)
        lanes = [bytes.reshape(len(bytes), -1, GROUP)[:, lane::LANES].mean() for lane in range(LANES)]
        if max(lanes) > ALL and min(lanes) < NONE:
            return True
    return False


def _groups(overlay: Overlay, codes: Array) -> Array:
    """Return the codes of full planes as numbers of GROUP bytes in the order of memory: a row for each image and plane."""
    word = overlay.layout.channels_per_word
    batch, channels, height, width = codes.shape
    planes = channels // word
    full = codes[:, : planes * word].reshape(batch, planes, word, height, width).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(full).reshape(batch * planes, -1).view(f"<u{GROUP}")
