"""Schema: base of the objects that ``--json`` prints."""

from __future__ import annotations

from typing import ClassVar

from ..util.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Schema:
    """Base of the objects that ``output.as_json`` prints."""

    schema: ClassVar[str]
