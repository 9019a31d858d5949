"""The templates of docs/architecture.md, as the page has them."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FILES: dict[str, str] = dict(re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def values(heading: str) -> list[Any]:
    """Return what the blocks of JSON below a heading say."""
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    return [json.loads(text) for text in re.findall(r"^```json\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)]


def merged(value: Any, changes: Any) -> Any:
    """Return a value of JSON with changes at any depth."""
    if not isinstance(value, dict) or not isinstance(changes, dict):
        return changes
    return {**value, **{key: merged(value.get(key), change) for key, change in changes.items()}}
