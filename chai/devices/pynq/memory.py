"""Buffers shared by host and accelerator, from the kernel's pool of contiguous memory."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ...blob import Array
from ...driver.memory import NoRoom
from ...errors import DeviceError
from ...util.lazy_numpy import np

MEMORY = Path("/proc/meminfo")


class Lost(DeviceError):
    """The opened board is gone: it must be opened again."""


def fail(what: str, error: Exception) -> NoReturn:
    """Raise Lost for an error of pynq's, of any type, as that depends on its version; raise an error of chai's as it is."""
    if isinstance(error, DeviceError):
        raise error
    raise Lost(
        f"the board does not answer: {what} ({type(error).__name__}: {error})",
        hint="another program may have taken it; load the network again, or restart the board",
    ) from error


@contextmanager
def answering(what: str) -> Iterator[None]:
    """Call ``fail`` for errors inside the context. A chain's own steps do without it: it costs more than most of them."""
    try:
        yield
    except Exception as error:
        fail(what, error)


# what nothing has stopped, or the parent of a fork, may write here until the next download
kept: list[PynqBuffers] = []


class PynqBuffers:
    """One pynq buffer per region of a program, and those of ``first`` that it has not itself.

    ``bytes`` are the host's views of them. A view keeps its buffer alive. ``coherent`` is whether the accelerator goes through
    the host's caches: results are then in them, perhaps nowhere else, and to invalidate would drop them.

    Raises NoRoom, with sizes and a remedy.
    """

    def __init__(self, sizes: Mapping[int, int], device: Any, coherent: bool, first: PynqBuffers | None = None) -> None:
        needed = sum(sizes.values())
        total, free = _contiguous()
        # what is not free may hold pages that the kernel can move: only the pool's size is a reason not to try
        if 0 < total < needed:
            raise _no_room(needed, total, free)
        self.own = sizes.keys()
        self.buffers: dict[int, Any] = {**first.buffers} if first else {}
        self.bytes: dict[int, Array] = {}
        self._coherent = coherent
        self._process = os.getpid()
        try:
            for region, size in sizes.items():
                self.buffers[region] = device.allocate((size,), "u1", cacheable=True)
        except (RuntimeError, MemoryError, OSError) as error:  # which of them depends on pynq's version
            self.free()
            raise _no_room(needed, total, free, error) from None
        except BaseException:
            self.free()
            raise
        self.addresses = {region: int(buffer.device_address) for region, buffer in self.buffers.items()}
        self.bytes.update((region, np.asarray(buffer)) for region, buffer in self.buffers.items())

    def free(self) -> None:
        """Release the buffers, even if an error's traceback still refers to this object, unless they are kept.

        A fork keeps its parent's.
        """
        if os.getpid() != self._process:
            kept.append(self)
        elif self not in kept:
            self.bytes.clear()
            self.buffers.clear()

    def flush(self, regions: Collection[int]) -> None:
        """Flush the host's writes to the accelerator."""
        try:
            for region in () if self._coherent else regions:
                self.buffers[region].flush()
        except Exception as error:
            fail("a buffer cannot be flushed", error)

    def invalidate(self, regions: Collection[int]) -> None:
        """Invalidate the host's cache, so that it reads the accelerator's writes."""
        try:
            for region in () if self._coherent else regions:
                self.buffers[region].invalidate()
        except Exception as error:
            fail("a buffer cannot be read", error)


def _contiguous() -> tuple[int, int]:
    """Return the bytes of the kernel's pool of contiguous memory, and those free; 0 if unknown."""
    try:
        sizes = dict(re.findall(r"^(Cma\w+): *(\d+) kB$", MEMORY.read_text(), re.MULTILINE))
    except OSError:
        return 0, 0
    return 1024 * int(sizes.get("CmaTotal", 0)), 1024 * int(sizes.get("CmaFree", 0))


def _no_room(needed: int, total: int, free: int, error: Exception | None = None) -> NoRoom:
    pool = (
        f"the pool of contiguous memory has {total / 1e6:.1f} MB, {free / 1e6:.1f} MB free" if total else "none is left"
    )
    return NoRoom(
        f"{needed / 1e6:.1f} MB of contiguous memory are needed, {pool}" + (f" ({error})" if error else ""),
        hint="a smaller batch; close other networks and notebooks (net.close()); or boot with a larger pool: cma=256M",
    )
