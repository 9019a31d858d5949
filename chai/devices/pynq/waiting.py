"""Wait until a chain is done, by polling STATUS or by the accelerator's interrupt.

Only this file uses the clock (``monotonic``, ``sleep``, ``until``), so that tests can make time pass faster.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Coroutine, Iterator
from time import monotonic, sleep
from typing import Any

from .memory import answering

EARLY = 0.9  # of a chain's modelled time: how long it is not asked whether it is done
POLL = 20e-6, 2e-3  # seconds between two polls: the first, and the longest; a poll itself takes about 30 us
LOST = 0.1  # seconds without an interrupt, after which STATUS is polled


class Polling:
    """Polls STATUS: short chains are done before an interrupt would arrive through the kernel."""

    def looks(self, seconds: float, expected: float = 0.0) -> Iterator[bool]:
        """Yield endlessly, whenever STATUS is to be polled, whether ``seconds`` had passed before.

        The first time is shortly before the ``expected`` seconds are over.
        """
        deadline, pause = monotonic() + seconds, POLL[0]
        if EARLY * expected > pause:
            sleep(EARLY * expected)
        while True:
            yield monotonic() > deadline
            sleep(pause)
            pause = min(2 * pause, POLL[1])

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


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

    def looks(self, seconds: float, expected: float = 0.0) -> Iterator[bool]:
        """Yield as Polling does, but at once. A lost interrupt costs ``LOST`` seconds; a spurious one, a poll."""
        deadline = monotonic() + seconds
        while True:
            now = monotonic()
            yield now > deadline
            self.comes(min(LOST, max(deadline - now, POLL[1])))

    def comes(self, seconds: float) -> bool:
        """Wait for an interrupt for at most ``seconds``; return whether one came. Raises Lost."""
        if self._coming is None or self._coming.done():
            self._coming = self._submit(self._pin.wait())
        if not until(self._coming, seconds):
            return False
        with answering("its interrupt cannot be waited for"):
            self._coming.result()
        return True

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
    """Wait for a future for at most ``seconds``; return whether it is done."""
    from concurrent.futures import wait

    return bool(wait((future,), seconds).done)


# -- in the loop's thread: pynq asks for the current loop when it opens a device and when it closes one


async def _take(pin: str, files: list[Any]) -> Any:
    """Return pynq's Interrupt of a pin, after dropping what pynq kept for an event loop that may have ended."""
    import pynq
    from pynq.interrupt import _InterruptController as Controllers

    Controllers._controllers.clear()
    Controllers._uio_devices.clear()
    interrupt = pynq.Interrupt(pin)
    files += Controllers._uio_devices.values()
    return interrupt


async def _release(files: list[Any]) -> None:
    """Close files and remove them from pynq's lists."""
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
    """Class of closed files: pynq's destructor would need an event loop in the thread that drops the last reference."""
