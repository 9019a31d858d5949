"""Every error that chai raises on purpose.

ChaiError
  ParseError        a file is malformed (path:line:column)
  ModelError        the network, its weights or its inputs do not fit together
    UnknownLayer    no definition for a layer type
    UnsupportedNodes  nodes of an ONNX file that no layer computes
    ShapeError      invalid blob sizes
    MissingWeights  a layer without its trained parameters
  DeviceError       the selected device cannot be used
  PluginError       a custom layer failed
  FetchError        a published file that could not be downloaded
  UsageError        an invalid argument or option
"""

from __future__ import annotations

from typing import Any

from .text import visible

NO_PARAMETERS = "this layer has no trained parameters: was the network loaded without its caffemodel?"  # a hint


class ChaiError(Exception):
    """Base class. ``layer`` names the layer with the error, ``hint`` says what to do; either may be None."""

    def __init__(self, message: str, *, layer: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.layer = layer
        self.hint = hint
        self.excerpt = ""  # the source line with a marker, ready to print

    def __str__(self) -> str:
        return self.headline + (visible(f" (hint: {self.hint})") if self.hint else "")

    @property
    def headline(self) -> str:
        """Return the message without its hint, in one line."""
        return visible(self.message)


class ParseError(ChaiError):
    """A file that does not have the expected format.

    ``line`` and ``column`` count from 1 and are None for binary files; ``excerpt`` is the source line with a marker under
    the error, ready to print.
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
    """A network that is inconsistent in itself, with its weights or with its inputs."""


class UnknownLayer(ModelError):
    """A layer type without a definition."""


class UnsupportedNodes(ModelError):
    """Nodes of an ONNX file that no layer computes. ``nodes`` has node, operator, opset, reason and hint of each."""

    def __init__(self, message: str, *, nodes: tuple[dict[str, Any], ...] = (), **more: Any) -> None:
        super().__init__(message, **more)
        self.nodes = nodes


class ShapeError(ModelError):
    """Blob sizes that a layer cannot accept."""


class MissingWeights(ModelError):
    """A layer whose trained parameters are missing."""


class DeviceError(ChaiError):
    """A device that is unknown or missing, or that failed."""


class PluginError(ChaiError):
    """A custom layer that cannot be found, loaded or run."""


class FetchError(ChaiError):
    """A published file that cannot be downloaded, or whose digest is wrong."""


class UsageError(ChaiError):
    """An invalid argument or option."""
