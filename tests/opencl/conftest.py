"""What is registered by a test is forgotten after it."""

from __future__ import annotations

from tests.plugins.conftest import _cache, machine_code, registry

__all__ = ["_cache", "machine_code", "registry"]
