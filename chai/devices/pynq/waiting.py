"""Until a chain is done: by looking at STATUS again and again, or by waiting for the accelerator's interrupt.

All of the driver's time passes here (``monotonic``, ``sleep``, ``until``), so that tests can have it pass faster.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Coroutine, Iterator
from time import monotonic, sleep
from typing import Any

from .memory import answering

POLL = 20e-6, 2e-3  # seconds between two looks: the first, and the longest; a look costs about 30 us itself
LOST = 0.1  # seconds without an interrupt, after which STATUS is looked at all the same


class Polling:
    """Short chains are done before an interrupt would have come through the kernel."""

    def looks(self, seconds: float) -> Iterator[bool]:
        """Yield one item per look at STATUS that is due: whether ``seconds`` were over before it. Endless."""
        deadline, pause = monotonic() + seconds, POLL[0]
        while True:
            yield monotonic() > deadline
            sleep(pause)
            pause = min(2 * pause, POLL[1])

    def close(self) -> None:
        """There is nothing to give back."""


class Interrupt:
    """An interrupt pin of the design, served by an event loop in a thread of its own.

    pynq ties /dev/uioN to the loop that is current when a pin is first used, for ever: a loop of the caller's would have
    ended before the second image (PYNQ issue 1505). Raises what pynq raises where the kernel has no such device.
    """

    def __init__(self, pin: str) -> None:
        import asyncio

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chai-interrupt", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        self._files: list[Any] = []  # pynq's of /dev/uioN, once there is one
        self._coming: Any = None
        try:
            self._pin = self._submit(_take(pin, self._files)).result()
        except BaseException:
            self.close()
            raise

    def looks(self, seconds: float) -> Iterator[bool]:
        """As Polling's. An interrupt that is lost costs ``LOST``; one too many, a look."""
        deadline = monotonic() + seconds
        while True:
            now = monotonic()
            yield now > deadline
            if self._coming is None or self._coming.done():
                self._coming = self._submit(self._pin.wait())
            if until(self._coming, min(LOST, max(deadline - now, POLL[1]))):
                with answering("its interrupt cannot be waited for"):
                    self._coming.result()

    def close(self) -> None:
        """End the thread and close /dev/uioN."""
        atexit.unregister(self.close)
        if self._loop.is_closed():
            return
        self._submit(_release(self._files)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _submit(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        import asyncio

        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


def until(future: Any, seconds: float) -> bool:
    """Wait for a future, no longer than that; whether it is done."""
    from concurrent.futures import wait

    return bool(wait((future,), seconds).done)


# -- in the loop's thread: pynq asks for the current loop when it opens a device and when it closes one


async def _take(pin: str, files: list[Any]) -> Any:
    """pynq's Interrupt of a pin. What it has kept from the bitstream before is tied to a loop that may not run any more."""
    import pynq
    from pynq.interrupt import _InterruptController as Controllers

    Controllers._controllers.clear()
    Controllers._uio_devices.clear()
    found = pynq.Interrupt(pin)
    files += Controllers._uio_devices.values()
    return found


async def _release(files: list[Any]) -> None:
    """Close files and take them from pynq's lists."""
    import asyncio

    from pynq.interrupt import _InterruptController as Controllers

    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for file in files:
        asyncio.get_running_loop().remove_reader(file.uio)
        file.uio.close()
        file.__class__ = _Closed
    Controllers._controllers.clear()
    Controllers._uio_devices.clear()


class _Closed:
    """What is left of a file: pynq's own way to end one asks for a loop in whatever thread the last reference goes."""
