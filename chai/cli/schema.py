"""Schema: base of the objects that ``--json`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Schema:
    """Base of the objects that ``output.as_json`` prints."""

    schema: ClassVar[str]
