"""Everything chai raises on purpose.

ChaiError
  ParseError        a file is not what it says it is (path:line:column)
  ModelError        the network or its weights do not fit together
    UnknownLayer    no definition for a layer type
    ShapeError      blob sizes that cannot be
    MissingWeights  a layer without its trained parameters
  DeviceError       the device that was asked for cannot be used
  PluginError       a custom layer failed
  FetchError        a published file that could not be had
  UsageError        an argument or option that cannot be followed
"""

from __future__ import annotations

from .util.text import visible


class ChaiError(Exception):
    """Base class. ``layer`` names the layer concerned, ``hint`` says what to do; either may be None."""

    def __init__(self, message: str, *, layer: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.layer = layer
        self.hint = hint
        self.excerpt = ""  # the place in a text, ready to print

    def __str__(self) -> str:
        return self.headline + (visible(f" (hint: {self.hint})") if self.hint else "")

    @property
    def headline(self) -> str:
        """The message without its hint, one line."""
        return visible(self.message)


class ParseError(ChaiError):
    """A file that cannot be read as what it should be.

    ``line`` and ``column`` count from 1 and are None for binary files; ``excerpt`` is the source line
    with a marker under the place, ready to print.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str,
        line: int | None = None,
        column: int | None = None,
        excerpt: str = "",
        layer: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, layer=layer, hint=hint)
        self.path = path
        self.line = line
        self.column = column
        self.excerpt = excerpt

    @property
    def headline(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}:{self.column}"
        layer = f"layer {self.layer!r}: " if self.layer and repr(self.layer) not in self.message else ""
        return visible(f"{place}: {layer}{self.message}")


class ModelError(ChaiError):
    """The network disagrees with itself, its weights or its inputs."""


class UnknownLayer(ModelError):
    """A layer type that has no definition here."""


class ShapeError(ModelError):
    """Blob sizes that a layer cannot accept."""


class MissingWeights(ModelError):
    """A layer whose trained parameters are not there."""


class DeviceError(ChaiError):
    """A device that is unknown, absent or failed."""


class PluginError(ChaiError):
    """A custom layer that cannot be found, loaded or run."""


class FetchError(ChaiError):
    """A published file that is out of reach, or is not what was published."""


class UsageError(ChaiError):
    """An argument or option that cannot be followed."""
