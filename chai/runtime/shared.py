"""What threads share of a Net: who may use it, who may change it, and when it is released."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar

from ..errors import UsageError
from ..util.sharing import Lifetime, inside

if TYPE_CHECKING:
    from ..graph import Graph


Network = TypeVar("Network", bound="Shared")


class Shared:
    """A network that several threads may use.

    ``_state`` guards sizes, formats and schedules. A layer's turn is taken after it, never before, and neither is held
    while a caller of ``stream`` has control.
    """

    def __init__(self) -> None:
        self._state = threading.RLock()
        self._lifetime: Lifetime = Lifetime(self._release)

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def graph(self) -> Graph:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of blobs, weights and what a device holds; with the last network on it, of the device too.

        Passes and streams that are running keep what they need until they end.
        """
        self._lifetime.close()

    def _check_open(self) -> None:
        if self._lifetime.closed:
            raise UsageError(f"{self.name} is closed", hint="ask before close(), or before its with block ends")

    @contextmanager
    def _using(self) -> Iterator[None]:
        """Keep what a pass needs until the block ends."""
        self._check_outside()
        with self._lifetime.used():
            self._check_open()
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold sizes, formats and schedules for this thread."""
        self._check_outside()
        with self._state:
            yield

    def _check_outside(self) -> None:
        """Raise UsageError in a layer of this network: it would wait for itself."""
        held = inside()
        layer = next((x for x in self.graph.layers if x.turn in held), None) if held else None
        if layer is not None:
            raise UsageError(
                f"layer {layer.name!r} asks its own network, {self.name}, to run or to change while it is running",
                hint="load a second chai.Net for that",
            )

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self.name}: a network cannot be pickled or copied",
            hint="hand over the paths of its files, and open them with chai.Net there",
        )

    def __enter__(self: Network) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
