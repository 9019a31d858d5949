"""The accelerator's clock: which one it is stands in the hardware handoff, how fast it should be in the manifest."""

from __future__ import annotations

import logging
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ...errors import DeviceError
from ...util.log import logger

if TYPE_CHECKING:
    from ...overlay import Overlay

log = logger("chai.pynq")

TOLERANCE = 0.01  # pynq's own: so near it does not warn
STEPS = range(100, 45, -5)  # percent of the clock that are tried where the divider's nearest is too fast


def source(handoff: Path, block: str) -> int | None:
    """Return number of the processor's clock that drives a block of the design, its fastest pin if there are several.

    None where no pin is driven by the processor, or the file says nothing of clocks.
    """
    found = []
    for module in ElementTree.parse(handoff).iter("MODULE"):
        if module.get("FULLNAME", "").strip("/") != block:
            continue
        for port in module.iter("PORT"):
            for end in port.iter("CONNECTION") if port.get("SIGIS") == "clk" else ():
                named = re.fullmatch(r"(?:FCLK_CLK|pl_clk)([0-3])", end.get("PORT", ""))
                if named:
                    found.append((int(port.get("CLKFREQUENCY") or 0), int(named[1])))
    return max(found)[1] if found else None


def set_clock(overlay: Overlay, handoff: Path, block: str) -> float | None:
    """Set the clock of the accelerator to what the manifest says: a download leaves it at what the handoff says. MHz that
    it runs at, None where nobody knows.

    What cannot be set is told as a warning, and so is a slower clock; DeviceError if the slowest there is, is too fast.
    """
    number = source(handoff, block)
    if number is None:
        log.info("no clock of the processor drives %s; it runs at what the bitstream makes of it", block)
        return None
    try:
        mhz = _set(number, overlay.clock_mhz)
    except (RuntimeError, ValueError, AttributeError, TypeError, OSError) as error:  # a PLL that pynq does not know
        log.warning("clock %d cannot be set to %g MHz: %s", number, overlay.clock_mhz, error)
        return None
    if mhz > overlay.clock_mhz * (1 + TOLERANCE):
        raise DeviceError(
            f"clock {number} of the board runs at {mhz:g} MHz, overlay {overlay.name} is made for {overlay.clock_mhz:g}",
            hint="codes may be wrong at a higher clock; the board's boot files set its PLLs",
        )
    slow = mhz < overlay.clock_mhz * (1 - TOLERANCE)
    log.log(
        logging.WARNING if slow else logging.INFO,
        "clock %d runs at %g MHz%s",
        number,
        mhz,
        f", the board does not reach the {overlay.clock_mhz:g} MHz of overlay {overlay.name}" if slow else "",
    )
    return mhz


def _set(number: int, wanted: float) -> float:
    """Return the MHz that are read back once the clock is set to the nearest that is not too fast."""
    import pynq

    name = f"fclk{number}_mhz"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what pynq would say is said above, with a name
        for percent in STEPS:
            setattr(pynq.Clocks, name, wanted * percent / 100)
            found = float(getattr(pynq.Clocks, name))
            if found <= wanted * (1 + TOLERANCE):
                break
    return found
