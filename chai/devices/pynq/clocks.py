"""Set the accelerator's clock: the hardware handoff says which one it is, the manifest its frequency."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from xml.etree import ElementTree

from ...errors import DeviceError
from ...overlay import Overlay
from ...util.log import logger

log = logger("chai.pynq")

TOLERANCE = 0.01  # pynq's own: within it, pynq does not warn
# what pynq raises for a PLL that it does not know
UNKNOWN = (RuntimeError, ValueError, AttributeError, TypeError, OSError, ArithmeticError)
STEPS = range(100, 45, -5)  # percent of the clock to try if the nearest divider is too fast


def source(handoff: Path, block: str) -> tuple[int, float] | None:
    """Return the number of the processor's clock that drives a block of the design, the fastest of several, and its MHz.

    None if the processor drives no pin of it, or the file has no clocks; 0 MHz if the file does not say.
    """
    sources = []
    for module in ElementTree.parse(handoff).iter("MODULE"):
        if module.get("FULLNAME", "").strip("/") != block:
            continue
        for port in module.iter("PORT"):
            for end in port.iter("CONNECTION") if port.get("SIGIS") == "clk" else ():
                named = re.fullmatch(r"(?:FCLK_CLK|pl_clk)([0-3])", end.get("PORT", ""))
                if named:
                    sources.append((int(port.get("CLKFREQUENCY") or 0) / 1e6, int(named[1])))
    return max(sources)[::-1] if sources else None


def set_clock(overlay: Overlay, handoff: Path, block: str) -> float | None:
    """Set the accelerator's clock, which a download sets by the handoff, to the manifest's; return its MHz, None if unknown.

    A handoff with a slower clock is of a bitstream that was built for that one.

    Logs a warning if it cannot be set or is slower. Raises DeviceError if even the slowest clock is too fast.
    """
    clock = source(handoff, block)
    if clock is None:
        log.info("no clock of the processor drives %s; it runs at what the bitstream makes of it", block)
        return None
    number, built = clock
    wanted = min(overlay.clock_mhz, built or overlay.clock_mhz)
    try:
        mhz = _set(number, wanted)
    except UNKNOWN as error:
        log.warning("clock %d cannot be set to %g MHz: %s", number, wanted, error)
        return None
    if mhz > wanted * (1 + TOLERANCE):
        message = f"clock {number} of the board runs at {mhz:g} MHz, overlay {overlay.name} is made for {wanted:g}"
        raise DeviceError(message, hint="codes may be wrong at a higher clock; the board's boot files set its PLLs")
    if mhz < wanted * (1 - TOLERANCE):
        reached = "clock %d runs at %g MHz, the board does not reach the %g MHz of overlay %s"
        log.warning(reached, number, mhz, wanted, overlay.name)
    else:
        log.info("clock %d runs at %g MHz", number, mhz)
    return mhz


def set_exactly(number: int, mhz: float, hint: str) -> None:
    """Set a clock of the processor, and read it back. Raises DeviceError unless it then runs at ``mhz``."""
    try:
        actual = _set(number, mhz)
    except UNKNOWN as error:
        raise DeviceError(f"clock {number} cannot be set to {mhz:g} MHz: {error}", hint=hint) from error
    if abs(actual - mhz) > mhz * TOLERANCE:
        raise DeviceError(f"clock {number} runs at {actual:g} MHz, and only {mhz:g} will do", hint=hint)


def _set(number: int, wanted: float) -> float:
    """Set the clock to the nearest frequency that is not too fast, and return the MHz read back."""
    import pynq

    name = f"fclk{number}_mhz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reported above, with a name
        for percent in STEPS:
            setattr(pynq.Clocks, name, wanted * percent / 100)
            reached = float(getattr(pynq.Clocks, name))
            if reached <= wanted * (1 + TOLERANCE):
                break
    return reached
