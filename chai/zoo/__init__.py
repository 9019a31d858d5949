"""Find networks: shipped ones, published weights, and files that a user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ParseError
from ..util.files import opened_file

if TYPE_CHECKING:
    from pathlib import Path


def is_compiled(path: str | Path) -> bool:
    return str(path).endswith(".chai")


def is_onnx(path: str | Path) -> bool:
    """Return whether a path is an ONNX file, by its name or its first bytes."""
    if str(path).endswith(".onnx"):
        return True
    from ..parser.mistaken import HEAD, starts_like_onnx  # a compiled network needs no parser

    try:
        with opened_file(path) as file:
            return starts_like_onnx(file.read(HEAD))
    except (OSError, ParseError):  # the name of a shipped network, for one, or a pipe
        return False
